// SPDX-License-Identifier: Apache-2.0
// Executes plans without a model, and finds whatever a real one would silently get wrong.
//
// A "row" of any cache is one number that stands for all tokens up to its position. Running a row of a layer reads what
// the real kernels would read (global rows through the block table, window rows of each layer through the page table)
// and reports every number that is not the one of this very sequence: a block that was freed too early or given to two,
// a window that is not complete, a replay that begins a token too late, a fork that missed a copy. Tokens are a hash of
// the sequence and the choice, so what a request answers depends on nothing else.
//
// Launch copies a plan and the table rows it uses, as a device queue would; Finish runs the oldest launched step. In
// between the scheduler goes on. Not thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "sched/scheduler.h"

namespace deepinfer::sim {

class FakeExecutor {
 public:
  FakeExecutor(const sched::Scheduler* scheduler, uint64_t seed);

  // A request whose answer ends when it has `stop_length` tokens; it fails there instead if `fails`.
  void Add(sched::RequestId id, std::span<const int32_t> prompt, sched::Replay replay, uint32_t choice,
           int64_t stop_length, bool fails);

  void Launch(const sched::StepPlan& plan);
  // Runs the oldest step; valid until the next call. REQUIRES: steps() > 0.
  const sched::StepResult& Finish();
  size_t steps() const { return launched_; }

  // "" or the first thing that went wrong.
  const std::string& violation() const { return violation_; }

  // The token that follows a sequence with that signature.
  static int32_t NextToken(uint64_t signature, uint32_t choice);
  static uint64_t Extend(uint64_t signature, int32_t token);
  static constexpr uint64_t kEmpty = 0x9e3779b97f4a7c15;

 private:
  struct Sequence {
    uint32_t generation = 0;
    sched::Replay replay = sched::Replay::kExact;
    uint32_t choice = 0;
    int64_t stop_length = 0;
    bool fails = false;
    bool sits_out = false;  // of some decodes, with its row or without
    // signatures[p]: of tokens 0 .. p. Its size is the number of tokens, as the device knows it.
    std::vector<uint64_t> signatures;
    int64_t rows_done = 0;
    int64_t sampling = 0;  // steps in flight that will surely commit tokens
  };
  struct Row {  // what a table said at launch
    size_t blocks_at = 0, num_blocks = 0;
    std::array<size_t, kv::kLayerGroups> pages_at{}, num_pages{};
    std::array<int64_t, kv::kLayerGroups> first{};
    int64_t write_from = 0;  // lowest position that the entry may write global rows to
  };
  struct Rows {  // what an entry turned out to run: [begin, good) count, [good, end) are rejected drafts
    int64_t begin = 0, good = 0, end = 0;
  };
  struct Step {
    sched::StepPlan plan;
    std::vector<Row> rows;
    std::vector<kv::BlockId> ids;
  };

  // Whether it surely commits a token.
  static bool Commits(const sched::PlanEntry& entry, const Sequence& s) {
    return entry.samples && !(s.sits_out && entry.kind == sched::EntryKind::kDecode);
  }
  void CopyRow(int32_t slot, Step* step);
  void NoteWriters(const sched::PlanEntry& entry, const Row& row, const Step& step, int32_t change);
  sched::EntryResult RunEntry(const Step& step, size_t index);
  void CheckState(const sched::PlanEntry& entry, const Rows& rows);
  void WriteGlobals(const Step& step, const Row& row, const sched::PlanEntry& entry, const Rows& rows);
  void ReadGlobals(const Step& step, const Row& row, const sched::PlanEntry& entry, int64_t begin);
  void RunLayer(const Step& step, const Row& row, const sched::PlanEntry& entry, int layer, const Rows& rows);
  void RunCopies(const sched::StepPlan& plan);
  sched::EntryResult Sample(sched::RequestId id, int64_t tokens_max);
  Sequence& Find(sched::RequestId id);
  uint64_t& WindowRow(kv::LayerGroup group, int layer, kv::BlockId page, int64_t position);
  template <typename... Args>
  void Fail(fmt::format_string<Args...> format, Args&&... args) {
    if (violation_.empty()) violation_ = fmt::format(format, std::forward<Args>(args)...);
  }

  const sched::Scheduler* scheduler_;
  const sched::Config& config_;
  std::mt19937_64 random_;
  std::vector<Sequence> sequences_;                              // by RequestId::index
  std::vector<uint64_t> globals_;                                // [blocks, 128]
  std::vector<uint8_t> replayed_;                                // [blocks]: written on top of a bounded replay
  std::array<std::vector<uint64_t>, kv::kLayerGroups> windows_;  // [pages, layers of the group, 128]
  std::array<int, kv::kLayerGroups> group_layers_{};
  std::vector<uint64_t> states_;  // [slots]
  std::vector<int32_t> writers_;  // [blocks]: steps in flight that may write there
  std::vector<uint32_t> writer_;  // [blocks]: whose
  std::vector<Step> steps_;       // ring
  size_t first_ = 0, launched_ = 0;
  std::vector<sched::EntryResult> entry_results_, fork_results_;
  std::vector<int32_t> tokens_;
  sched::StepResult result_;
  std::string violation_;
};

}  // namespace deepinfer::sim
