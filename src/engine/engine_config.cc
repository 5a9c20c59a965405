// SPDX-License-Identifier: Apache-2.0
#include "engine/engine_config.h"

#include <algorithm>

#include "engine/kv_memory.h"

namespace deepinfer::engine {
namespace {

constexpr int kChoicesMax = 128;

}  // namespace

Status InRange(const char* field, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return Status();
  return Error(Code::kInvalidArgument, "{}: expected {}..{}, found {}", field, low, high, value);
}

Result<sched::Config> MakeConfig(const EngineOptions& options, const checkpoint::ModelConfig& model, int32_t draft_rows) {
  DI_RETURN_IF_ERROR(InRange("context_max", options.context_max, 0, model.max_positions));
  DI_RETURN_IF_ERROR(InRange("requests_running_max", options.requests_running_max, 1, 1 << 16));
  DI_RETURN_IF_ERROR(InRange("step_rows_max", options.step_rows_max, options.requests_running_max + 1, 1 << 19));
  DI_RETURN_IF_ERROR(InRange("requests_waiting_max", options.requests_waiting_max, 1, 1 << 24));
  DI_RETURN_IF_ERROR(InRange("snapshot_every_blocks", options.snapshot_every_blocks, 0, 1 << 24));
  DI_RETURN_IF_ERROR(InRange("prefill_rows_max", options.prefill_rows_max, 0, options.step_rows_max));
  sched::Config config;
  config.layers = ShapeOf(model);
  config.length_max = options.context_max == 0 ? model.max_positions : options.context_max;
  config.slots = options.requests_running_max;
  config.queue_max = options.requests_waiting_max;
  config.choices_max = std::min(kChoicesMax, options.requests_waiting_max);
  config.step_rows_max = options.step_rows_max;
  config.prefill_rows_max = options.prefill_rows_max == 0 ? options.step_rows_max : options.prefill_rows_max;
  config.snapshot_every_blocks = options.snapshot_every_blocks;
  config.draft_rows = draft_rows;
  DI_RETURN_IF_ERROR(DivideMemory(model,
                                  {.memory_bytes = options.kv_memory_bytes,
                                   .snapshot_share = options.snapshot_share,
                                   .draft_stages = draft_rows > 0 ? model.draft.num_stages : 0},
                                  &config));
  return config;
}

}  // namespace deepinfer::engine
