// SPDX-License-Identifier: Apache-2.0
// Properties of the default profile on the stored streams: the table in docs/recipe.md lists exactly those whose answer
// differs from the compatible one; all others give the stored events but for usage; every other cutting gives the
// same events; and what is streamed, joined, is the whole answer.
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>

#include "stream_vectors.h"

namespace deepinfer::recipe {
namespace {

constexpr Protocol kAll[] = {Protocol::kChat, Protocol::kResponses, Protocol::kMessages};

Answer AnswerTo(const StreamVector& vector, Profile profile, const std::vector<StreamChunk>& chunks) {
  const TestTokenizer* tokenizer = FindTokenizer(vector.tokenizer);
  auto parser =
      OutputParser::Create(vector.parsing, profile, tokenizer == nullptr ? nullptr : tokenizer->vocabulary.get());
  EXPECT_TRUE(parser.ok());
  Answer answer;
  OutputEvents events;
  for (const StreamChunk& chunk : chunks) {
    EXPECT_TRUE(PushChunk(chunk, parser->get(), &events).ok());
    for (const OutputEvent& event : events.events()) answer.Take(events, event, "");
  }
  events.Clear();
  EXPECT_TRUE((*parser)->Finish(vector.finish, &events).ok());
  for (const OutputEvent& event : events.events()) answer.Take(events, event, "");
  answer.usage = (*parser)->usage();
  return answer;
}

std::string Describe(const Answer& answer) {
  std::string text;
  for (const AnswerPart& part : answer.parts) {
    text += fmt::format("{} \"{}\" [{}] {}\n", static_cast<int>(part.kind), part.name, part.text, part.whole);
  }
  for (const MalformedCall& call : answer.malformed) {
    text += fmt::format("{} {} [{}]\n", call.call, MalformedText(call.reason), call.raw);
  }
  return text + fmt::format("finish {} [{}]", static_cast<int>(answer.finish), answer.stop_sequence);
}

bool Available(const StreamVector& vector) {
  return vector.tokenizer.empty() || FindTokenizer(vector.tokenizer) != nullptr;
}

// The ids of the table's first column: "s0001", "s0003-s0007".
std::set<std::string> ListedIds() {
  std::ifstream file(DI_SOURCE_DIR "/docs/recipe.md");
  std::set<std::string> ids;
  std::string line;
  bool inside = false;
  while (std::getline(file, line)) {
    if (line.starts_with("<!-- differing streams: ")) inside = line.find("begin") != std::string::npos;
    if (!inside || line.size() < 4 || !line.starts_with("| s") || std::isdigit(static_cast<unsigned char>(line[3])) == 0) {
      continue;
    }
    std::istringstream cell(line.substr(2, line.find(" |", 2) - 2));
    std::string range;
    while (std::getline(cell, range, ',')) {
      const size_t begin = range.find('s');
      const int first = std::stoi(range.substr(begin + 1, 4));
      const size_t dash = range.find('-');
      const int last = dash == std::string::npos ? first : std::stoi(range.substr(dash + 2, 4));
      for (int id = first; id <= last; ++id) EXPECT_TRUE(ids.insert(fmt::format("s{:04}", id)).second) << id;
    }
  }
  return ids;
}

TEST(DefaultStreams, TheTableListsWhatDiffers) {
  const std::set<std::string> listed = ListedIds();
  std::string missing;
  std::string superfluous;
  for (const StreamVector& vector : StreamVectors()) {
    if (!Available(vector)) continue;
    const bool differs = Describe(AnswerTo(vector, Profile::kCompatible, vector.chunks)) !=
                         Describe(AnswerTo(vector, Profile::kDefault, vector.chunks));
    if (differs && !listed.contains(vector.id)) missing += vector.id + " " + vector.name + "\n";
    if (!differs && listed.contains(vector.id)) superfluous += vector.id + " " + vector.name + "\n";
  }
  EXPECT_EQ(missing, "");
  EXPECT_EQ(superfluous, "");
}

// Usage apart, and apart from the chunk that carries it.
Json WithoutUsage(Json json) {
  if (json.IsArray()) {
    for (Json& item : json.Items()) item = WithoutUsage(std::move(item));
    std::erase_if(json.Items(), [](const Json& item) {
      if (!item.IsArray() || item.Items().size() != 2) return false;
      const Json* choices = item.Items()[1].Find("choices");
      return choices != nullptr && choices->Items().empty();
    });
  } else if (json.IsObject()) {
    std::erase_if(json.Members(), [](const auto& member) { return member.first == "usage" || member.first == "logprobs"; });
    for (auto& member : json.Members()) member.second = WithoutUsage(std::move(member.second));
  }
  return json;
}

TEST(DefaultStreams, TheOthersGiveTheStoredEvents) {
  const std::set<std::string> listed = ListedIds();
  for (const StreamVector& vector : StreamVectors()) {
    if (!Available(vector) || listed.contains(vector.id)) continue;
    for (const Protocol protocol : kAll) {
      const StreamResult result = RunStream(vector, protocol, Profile::kDefault, vector.chunks);
      std::string where;
      EXPECT_TRUE(SameJson(WithoutUsage(vector.events.at(protocol)), WithoutUsage(result.events), &where))
          << vector.id << " " << vector.name << " events " << where;
      where.clear();
      EXPECT_TRUE(SameJson(WithoutUsage(vector.finals.at(protocol)), WithoutUsage(result.body), &where))
          << vector.id << " " << vector.name << " final " << where;
      if (HasFailure()) return;
    }
  }
}

TEST(DefaultStreams, OtherCuttingsGiveTheSame) {
  for (const StreamVector& vector : StreamVectors()) {
    if (!Available(vector)) continue;
    const Answer whole = AnswerTo(vector, Profile::kDefault, vector.chunks);
    for (uint64_t seed = 0; seed < 20; ++seed) {
      const Answer cut = AnswerTo(vector, Profile::kDefault, Rechunk(vector.chunks, seed));
      ASSERT_EQ(Describe(whole), Describe(cut)) << vector.id << " " << vector.name << " seed " << seed;
      // What is pushed after the end of the answer does not count.
      if (vector.tokenizer.empty() || vector.parsing.parse_json_output) continue;
      if (whole.finish == FinishReason::kStopSequence) continue;
      ASSERT_EQ(whole.usage.completion_tokens, cut.usage.completion_tokens) << vector.id;
      ASSERT_EQ(whole.usage.reasoning_tokens, cut.usage.reasoning_tokens) << vector.id;
    }
  }
}

// A Chat stream's deltas as the message that they make.
TEST(DefaultStreams, StreamedIsWhole) {
  for (const StreamVector& vector : StreamVectors()) {
    if (!Available(vector)) continue;
    const StreamResult result = RunStream(vector, Protocol::kChat, Profile::kDefault, vector.chunks);
    std::string content, reasoning, finish;
    std::map<std::string, std::string> calls;
    for (const Json& event : result.events.Items()) {
      const Json& chunk = event.Items()[1];
      if (chunk.Find("choices")->Items().empty()) continue;
      const Json& choice = chunk.Find("choices")->Items()[0];
      if (choice.Find("finish_reason")->IsString()) finish = choice.Find("finish_reason")->AsString();
      const Json& delta = *choice.Find("delta");
      if (const Json* text = delta.Find("content"); text != nullptr && text->IsString()) content += text->AsString();
      if (const Json* text = delta.Find("reasoning_content"); text != nullptr && text->IsString()) {
        reasoning += text->AsString();
      }
      if (const Json* list = delta.Find("tool_calls"); list != nullptr) {
        const Json& call = list->Items()[0];
        calls[call.Find("index")->Literal()] += call.Find("function")->Find("arguments")->AsString();
      }
    }
    const Json& choice = result.body.Find("choices")->Items()[0];
    const Json& message = *choice.Find("message");
    EXPECT_EQ(content, message.Find("content")->AsString()) << vector.id;
    EXPECT_EQ(finish, choice.Find("finish_reason")->AsString()) << vector.id;
    if (message.Find("reasoning_content") != nullptr) {
      EXPECT_EQ(reasoning, message.Find("reasoning_content")->AsString()) << vector.id;
    }
    const Json* whole_calls = message.Find("tool_calls");
    ASSERT_EQ(calls.size(), whole_calls == nullptr ? 0 : whole_calls->Items().size()) << vector.id;
    for (size_t i = 0; i < calls.size(); ++i) {
      EXPECT_EQ(calls[std::to_string(i)], whole_calls->Items()[i].Find("function")->Find("arguments")->AsString());
    }
  }
}

}  // namespace
}  // namespace deepinfer::recipe
