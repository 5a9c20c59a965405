// SPDX-License-Identifier: Apache-2.0
#include "recipe/normalize.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace deepinfer::recipe {
namespace {

constexpr std::string_view kBlankLine = "\n\n";

bool Empty(const Content& content) { return content.text.empty() && content.images.empty(); }

// V4 knows one system message only: all of them, wherever they stand, become the first message.
std::vector<Message> GatherSystem(const std::vector<Message>& messages) {
  std::vector<Message> result;
  Message system(Role::kSystem);
  bool any = false;
  for (const Message& message : messages) {
    if (message.role != Role::kSystem) {
      result.push_back(message);
      continue;
    }
    any = true;
    if (!Empty(message.content)) {
      system.content.Append(Empty(system.content) ? std::string_view() : kBlankLine, message.content);
    }
  }
  if (any) result.insert(result.begin(), std::move(system));
  return result;
}

std::vector<Message> MergeNeighbours(std::vector<Message> messages, ModelVersion version) {
  const bool is_v4 = version == ModelVersion::kV4;
  std::vector<Message> result;
  for (Message& message : messages) {
    Message* const last = result.empty() ? nullptr : &result.back();
    const bool same_role = last != nullptr && last->role == message.role;
    if (same_role && message.role == Role::kUser) {
      if (is_v4 && Empty(message.content)) continue;
      const bool first_text = is_v4 && Empty(last->content);
      last->content.Append(first_text ? std::string_view() : kBlankLine, std::move(message.content));
    } else if (same_role && message.role == Role::kLatestReminder && !is_v4) {
      continue;  // of neighbouring reminders the first one counts
    } else {
      result.push_back(std::move(message));
    }
  }
  return result;
}

// Puts the tool results among `slots` (indices into `messages`) into the order of `calls`. A result of an unknown call
// counts as one of the first call.
void SortResults(const std::vector<ToolCall>& calls, const std::vector<size_t>& slots, std::vector<Message>* messages) {
  if (slots.size() < 2) return;
  std::unordered_map<std::string_view, size_t> order;
  for (size_t i = 0; i < calls.size(); ++i) order[calls[i].id] = i;
  const auto position = [&](const Message& message) {
    const auto found = order.find(message.tool_call_id);
    return found == order.end() ? size_t{0} : found->second;
  };
  std::vector<Message> results;
  results.reserve(slots.size());
  for (const size_t slot : slots) results.push_back(std::move((*messages)[slot]));
  std::stable_sort(results.begin(), results.end(),
                   [&](const Message& a, const Message& b) { return position(a) < position(b); });
  for (size_t i = 0; i < slots.size(); ++i) (*messages)[slots[i]] = std::move(results[i]);
}

// V4 writes the calls of a message in the order of their ids.
void SortCalls(std::vector<Message>* messages) {
  for (Message& message : *messages) {
    std::stable_sort(message.tool_calls.begin(), message.tool_calls.end(),
                     [](const ToolCall& a, const ToolCall& b) { return a.id < b.id; });
  }
}

// V4.1 sorts the results of a run of tool and user messages, whose user texts stay where they are; V4 those of a run of
// tool messages.
void OrderResults(ModelVersion version, std::vector<Message>* messages) {
  const std::vector<ToolCall> no_calls;
  const Message* assistant = nullptr;
  std::vector<size_t> slots;
  const auto flush = [&] {
    SortResults(assistant == nullptr ? no_calls : assistant->tool_calls, slots, messages);
    slots.clear();
  };
  for (size_t i = 0; i < messages->size(); ++i) {
    const Message& message = (*messages)[i];
    if (message.role == Role::kTool) {
      slots.push_back(i);
    } else if (message.role != Role::kUser || version == ModelVersion::kV4) {
      flush();
    }
    if (message.role == Role::kAssistant && !message.tool_calls.empty()) assistant = &message;
  }
  flush();
}

}  // namespace

std::vector<Message> NormalizeMessages(const std::vector<Message>& messages, ModelVersion version, bool needs_system) {
  std::vector<Message> result =
      MergeNeighbours(version == ModelVersion::kV4 ? GatherSystem(messages) : messages, version);
  if (version == ModelVersion::kV4) SortCalls(&result);
  OrderResults(version, &result);
  if (needs_system && (result.empty() || result.front().role != Role::kSystem)) {
    result.insert(result.begin(), Message(Role::kSystem));
  }
  return result;
}

}  // namespace deepinfer::recipe
