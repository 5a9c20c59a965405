// SPDX-License-Identifier: Apache-2.0
#include "sched/config.h"

#include <algorithm>

namespace deepinfer::sched {
namespace {

constexpr int32_t kBlockTokens = kv::kBlockTokens;

template <typename T>
T DivideUp(T a, T b) {
  return (a + b - 1) / b;
}

Status InRange(const char* field, int64_t value, int64_t min, int64_t max) {
  if (value >= min && value <= max) return {};
  return Error(Code::kInvalidArgument, "{}: expected {}..{}, found {}", field, min, max, value);
}

}  // namespace

int32_t Config::pages_per_point() const { return std::max(1, DivideUp(layers.window - 1, kBlockTokens)); }

int32_t Config::pages_per_request_min() const {
  // The window before a block end, the page in hand, and the worst case of all steps in flight behind it.
  return pages_per_point() + 2 + DivideUp((1 + draft_rows) * (steps_in_flight + 2), kBlockTokens);
}

int32_t Config::pages_per_request_max() const {
  const int64_t rows = int64_t{steps_in_flight} * prefill_rows_max;
  return pages_per_request_min() + static_cast<int32_t>(DivideUp<int64_t>(rows, kBlockTokens));
}

int32_t Config::blocks_per_request_max() const {
  return static_cast<int32_t>(std::min<int64_t>(blocks, DivideUp<int64_t>(length_max, kBlockTokens)));
}

Status Config::Validate() const {
  constexpr int32_t kMany = 1 << 24;
  DI_RETURN_IF_ERROR(InRange("layers.num_layers", layers.num_layers, 1, 4096));
  DI_RETURN_IF_ERROR(InRange("layers.window", layers.window, 1, 1 << 16));
  for (size_t i = 0; i < layers.kv_sources.size(); ++i) {
    const int32_t from = i == 0 ? 0 : layers.kv_sources[i - 1] + 1;
    DI_RETURN_IF_ERROR(InRange("layers.kv_sources", layers.kv_sources[i], from, layers.num_layers - 1));
  }
  DI_RETURN_IF_ERROR(InRange("slots", slots, 1, 1 << 16));
  DI_RETURN_IF_ERROR(InRange("queue_max", queue_max, 1, kMany));
  DI_RETURN_IF_ERROR(InRange("choices_max", choices_max, 1, queue_max));
  DI_RETURN_IF_ERROR(InRange("length_max", length_max, 2, 1 << 30));
  DI_RETURN_IF_ERROR(InRange("draft_rows", draft_rows, 0, 64));
  DI_RETURN_IF_ERROR(InRange("steps_in_flight", steps_in_flight, 1, 8));
  DI_RETURN_IF_ERROR(InRange("prefill_rows_max", prefill_rows_max, 1, kMany));
  DI_RETURN_IF_ERROR(InRange("step_rows_max", step_rows_max, int64_t{slots} + 1, kMany));
  DI_RETURN_IF_ERROR(InRange("blocks", blocks, 1, kMany));
  constexpr int64_t kTableEntriesMax = int64_t{1} << 29;
  if (int64_t{slots} * blocks_per_request_max() > kTableEntriesMax) {
    return Error(Code::kInvalidArgument, "slots x length_max: {} x {} tokens make block tables of more than {} entries",
                 slots, length_max, kTableEntriesMax);
  }
  const bool has_group[kv::kLayerGroups] = {layers.first_late() > 0,
                                            layers.first_late() < layers.num_layers || draft_rows > 0};
  for (const auto group : {kv::kEarly, kv::kLate}) {
    const char* field = group == kv::kEarly ? "pages[early]" : "pages[late]";
    const char* share = group == kv::kEarly ? "snapshot_pages[early]" : "snapshot_pages[late]";
    DI_RETURN_IF_ERROR(
        InRange(field, pages[group], has_group[group] ? pages_per_request_min() : 0, has_group[group] ? kMany : 0));
    DI_RETURN_IF_ERROR(InRange(share, snapshot_pages[group], 0, pages[group]));
  }
  DI_RETURN_IF_ERROR(InRange("snapshot_every_blocks", snapshot_every_blocks, 0, kMany));
  DI_RETURN_IF_ERROR(InRange("priority_head_start_ms", priority_head_start_ms, 0, int64_t{1} << 40));
  return InRange("bypass_max", bypass_max, 0, kMany);
}

}  // namespace deepinfer::sched
