// SPDX-License-Identifier: Apache-2.0
#include "engine/warm_up.h"

#include <algorithm>

namespace deepinfer::engine {
namespace {

using model::deepseek_v41::Model;
using model::deepseek_v41::Segment;
using model::deepseek_v41::Step;

// A step of `counts[i]` rows from position 0 on in slot i, logits of the last `logits` rows.
class FakeStep {
 public:
  FakeStep(const checkpoint::ModelConfig& config, const std::vector<int32_t>& counts, int64_t logits)
      : zeros_(static_cast<size_t>(config.num_layers) + 1) {
    int32_t rows = 0;
    for (size_t slot = 0; slot < counts.size(); ++slot) {
      if (counts[slot] == 0) continue;
      segments_.push_back({.request = static_cast<int32_t>(slot),
                           .begin = 0,
                           .end = counts[slot],
                           .run_from = zeros_,
                           .window_floor = std::span(zeros_).first(zeros_.size() - 1)});
      rows += counts[slot];
    }
    ids_.resize(static_cast<size_t>(rows));
    tokens_.resize(ids_.size() * static_cast<size_t>(std::max<int64_t>(config.engram.ngram_max, 1)));
    for (auto row = static_cast<int32_t>(rows - std::min<int64_t>(logits, rows)); row < rows; ++row) logit_rows_.push_back(row);
  }

  Step step() const { return {.segments = segments_, .tokens = tokens_, .ids = ids_, .logit_rows = logit_rows_}; }

 private:
  std::vector<int32_t> zeros_, ids_, tokens_, logit_rows_;
  std::vector<Segment> segments_;
};

std::string Bytes(int64_t bytes) { return fmt::format("{:.2f} GB", static_cast<double>(bytes) * 1e-9); }

}  // namespace

Result<WarmUpResult> WarmUp(const LoadedModel& loaded, const sched::Config& config, KvMemory* memory, Model* model,
                            Drafter* drafter) {
  backend::Backend& device = loaded.backend();
  WarmUpResult result;
  if (!device.can_record()) return result;
  const auto slots = static_cast<size_t>(config.slots);
  KvMemory::Tables tables;
  tables.blocks.resize(slots * static_cast<size_t>(config.blocks_per_request_max()));
  for (const auto group : {kv::kEarly, kv::kLate}) {
    tables.pages[group].resize(slots * static_cast<size_t>(config.pages_per_request_max()));
    tables.first_pages[group].resize(slots);
  }
  memory->SetTables(tables);
  const auto run = [&](const std::vector<int32_t>& counts, int64_t logits) {
    const FakeStep fake(loaded.config(), counts, logits);
    model->Forward(fake.step(), memory->caches());
    return device.Synchronize();
  };
  // The largest step: one prompt's chunk, and a row of every other slot.
  std::vector<int32_t> counts(slots);
  counts[0] = static_cast<int32_t>(std::min<int64_t>({config.prefill_rows_max, config.step_rows_max, config.length_max}));
  const int32_t others = std::min<int32_t>(config.slots - 1, config.step_rows_max - counts[0]);
  std::fill_n(counts.begin() + 1, others, 1);
  DI_RETURN_IF_ERROR(run(counts, others + 1).In("the largest step"));

  const int64_t free_before = device.memory()->free_bytes;
  const int32_t rows_each = 1 + config.draft_rows;
  for (const int64_t rows : model->recorded_sizes()) {
    if (rows > int64_t{config.slots} * rows_each) break;
    auto left = static_cast<int32_t>(rows);
    const int32_t each = (left + config.slots - 1) / config.slots;
    for (int32_t& count : counts) left -= count = std::min(each, left);
    // The first run takes what it needs, the second is recorded.
    for (int i = 0; i < 2; ++i) DI_RETURN_IF_ERROR(run(counts, rows).In(fmt::format("a step of {} rows", rows)));
    ++result.recordings;
    if (drafter == nullptr) continue;
    DI_ASSIGN_OR_RETURN(const int64_t recordings, drafter->WarmUpContext(model->draft_taps(), rows));
    result.recordings += recordings;
  }
  if (drafter != nullptr) {
    DI_ASSIGN_OR_RETURN(const int64_t recordings, drafter->WarmUpBlocks(config.slots));
    result.recordings += recordings;
  }
  result.recording_bytes = std::max<int64_t>(0, free_before - device.memory()->free_bytes);
  return result;
}

std::string MemoryPlan(const LoadedModel& loaded, const WarmUpResult& warm_up, int64_t cache_bytes, int64_t scratch_bytes) {
  const std::optional<backend::DeviceMemory> memory = loaded.backend().memory();
  if (!memory) return {};
  const backend::BindStats& load = loaded.bind_stats();
  std::string plan = fmt::format("device memory {}: weights {}, cache {}, step {}, workspace of ops {}, {} recorded steps {}, free {}",
                                 Bytes(memory->total_bytes), Bytes(memory->weight_bytes), Bytes(cache_bytes), Bytes(scratch_bytes),
                                 Bytes(memory->workspace_bytes), warm_up.recordings, Bytes(warm_up.recording_bytes),
                                 Bytes(memory->free_bytes));
  if (memory->host_table_bytes > 0) plan += fmt::format("; Engram tables in pinned host memory {}", Bytes(memory->host_table_bytes));
  plan += fmt::format("; weights read: {} in {:.2f} s, {:.2f} GB/s, {} threads, {}", Bytes(load.bytes), load.seconds,
                      static_cast<double>(load.bytes) * 1e-9 / std::max(load.seconds, 1e-9), load.threads,
                      load.direct ? "direct" : "through the page cache");
  return plan;
}

}  // namespace deepinfer::engine
