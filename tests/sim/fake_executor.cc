// SPDX-License-Identifier: Apache-2.0
#include "fake_executor.h"

#include <algorithm>

namespace deepinfer::sim {
namespace {

using kv::kBlockTokens;
using kv::kEarly;
using kv::kLate;
using sched::EntryKind;
using sched::PlanEntry;
using sched::Replay;
using sched::StepPlan;

uint64_t Mix(uint64_t x) {
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93;
  x ^= x >> 32;
  return x;
}

}  // namespace

int32_t FakeExecutor::NextToken(uint64_t signature, uint32_t choice) {
  return static_cast<int32_t>(Mix(signature + choice) % 1000);
}

uint64_t FakeExecutor::Extend(uint64_t signature, int32_t token) {
  return Mix(signature * 31 + static_cast<uint64_t>(token) + 1);
}

FakeExecutor::FakeExecutor(const sched::Scheduler* scheduler, uint64_t seed)
    : scheduler_(scheduler), config_(scheduler->config()), random_(seed) {
  const auto blocks = static_cast<size_t>(config_.blocks);
  sequences_.resize(static_cast<size_t>(config_.queue_max + config_.slots));
  globals_.assign(blocks * kBlockTokens, 0);
  replayed_.assign(blocks, 0);
  writers_.assign(blocks, 0);
  writer_.assign(blocks, 0);
  group_layers_[kEarly] = config_.layers.first_late();
  group_layers_[kLate] = config_.layers.num_layers - config_.layers.first_late();
  for (const auto group : {kEarly, kLate}) {
    windows_[group].assign(static_cast<size_t>(config_.pages[group] * group_layers_[group]) * kBlockTokens, 0);
  }
  states_.assign(static_cast<size_t>(config_.slots), 0);
  steps_.resize(static_cast<size_t>(config_.steps_in_flight));
}

void FakeExecutor::Add(sched::RequestId id, std::span<const int32_t> prompt, Replay replay, uint32_t choice,
                       int64_t stop_length, bool fails) {
  Sequence& s = sequences_[id.index];
  s.generation = id.generation;
  s.replay = replay;
  s.choice = choice;
  s.stop_length = stop_length;
  s.fails = fails;
  s.sampling = 0;
  s.sits_out = random_() % 4 == 0;
  s.signatures.clear();
  uint64_t signature = kEmpty;
  for (const int32_t token : prompt) s.signatures.push_back(signature = Extend(signature, token));
}

FakeExecutor::Sequence& FakeExecutor::Find(sched::RequestId id) {
  Sequence& s = sequences_[id.index];
  if (s.generation != id.generation) Fail("a plan names request {}/{}, which is gone", id.index, id.generation);
  return s;
}

uint64_t& FakeExecutor::WindowRow(kv::LayerGroup group, int layer, kv::BlockId page, int64_t position) {
  const int in_group = group == kEarly ? layer : layer - group_layers_[kEarly];
  return windows_[group][static_cast<size_t>((page * group_layers_[group] + in_group) * kBlockTokens +
                                             position % kBlockTokens)];
}

void FakeExecutor::CopyRow(int32_t slot, Step* step) {
  Row& row = step->rows.emplace_back();
  const auto blocks = scheduler_->cache().blocks().ids(slot);
  row.blocks_at = step->ids.size();
  row.num_blocks = blocks.size();
  step->ids.insert(step->ids.end(), blocks.begin(), blocks.end());
  for (const auto group : {kEarly, kLate}) {
    const kv::BlockTable& table = scheduler_->cache().pages(group);
    const auto pages = table.ids(slot);
    row.first[group] = table.first(slot);
    row.pages_at[group] = step->ids.size();
    row.num_pages[group] = pages.size();
    step->ids.insert(step->ids.end(), pages.begin(), pages.end());
  }
}

// Blocks that the entry may write to: nobody else may write to them while it is in flight.
void FakeExecutor::NoteWriters(const PlanEntry& entry, const Row& row, const Step& step, int32_t change) {
  for (int64_t block = row.write_from / kBlockTokens; block * kBlockTokens < entry.position_end; ++block) {
    const auto id = static_cast<size_t>(step.ids[row.blocks_at + static_cast<size_t>(block)]);
    if (change > 0 && writers_[id] > 0 && writer_[id] != entry.request.index) {
      Fail("block {} is given to request {} while a step in flight may write to it for {}", id, entry.request.index,
           writer_[id]);
    }
    writers_[id] += change;
    writer_[id] = entry.request.index;
  }
}

void FakeExecutor::Launch(const StepPlan& plan) {
  if (launched_ == steps_.size()) return Fail("more steps in flight than allowed");
  Step& step = steps_[(first_ + launched_++) % steps_.size()];
  step.plan = plan;
  step.rows.clear();
  step.ids.clear();
  int64_t rows = 0, prefill_rows = 0;
  for (const PlanEntry& entry : plan.entries) {
    if (entry.first_row != rows) Fail("rows of a plan have a gap");
    rows += entry.rows;
    if (entry.kind == EntryKind::kPrefill) prefill_rows += entry.rows;
    CopyRow(entry.slot, &step);
    Row& row = step.rows.back();
    const auto known = static_cast<int64_t>(scheduler_->Tokens(entry.request).size());
    Sequence& s = Find(entry.request);
    // Each sampling step before this one commits a token at least, but for decodes that may sit out.
    row.write_from =
        entry.kind == EntryKind::kDecode ? known - 1 + s.sampling : std::max(entry.begin, entry.global_from);
    s.sampling += Commits(entry, s);
    if (entry.position_end > static_cast<int64_t>(row.num_blocks) * kBlockTokens) Fail("rows without blocks");
    NoteWriters(entry, row, step, 1);
  }
  for (const sched::Fork& fork : plan.forks) ++Find(fork.request).sampling;
  if (rows != plan.rows || rows > config_.step_rows_max)
    Fail("{} rows in a step, limit {}", rows, config_.step_rows_max);
  if (prefill_rows > config_.prefill_rows_max) Fail("{} prompt rows, limit {}", prefill_rows, config_.prefill_rows_max);
}

const sched::StepResult& FakeExecutor::Finish() {
  const Step& step = steps_[first_];
  first_ = (first_ + 1) % steps_.size();
  --launched_;
  entry_results_.clear();
  fork_results_.clear();
  tokens_.clear();
  for (size_t i = 0; i < step.plan.entries.size(); ++i) {
    entry_results_.push_back(RunEntry(step, i));
    NoteWriters(step.plan.entries[i], step.rows[i], step, -1);
    Sequence& s = Find(step.plan.entries[i].request);
    s.sampling -= Commits(step.plan.entries[i], s);
  }
  RunCopies(step.plan);
  for (const sched::Fork& fork : step.plan.forks) {
    Sequence& s = Find(fork.request);
    s.rows_done = static_cast<int64_t>(s.signatures.size());
    --s.sampling;
    fork_results_.push_back(Sample(fork.request, 1));
  }
  result_ = {step.plan.step, entry_results_, fork_results_, tokens_};
  return result_;
}

sched::EntryResult FakeExecutor::RunEntry(const Step& step, size_t index) {
  const PlanEntry& entry = step.plan.entries[index];
  const Row& row = step.rows[index];
  Sequence& s = Find(entry.request);
  const auto length = static_cast<int64_t>(s.signatures.size());
  sched::EntryResult result;
  Rows rows{entry.begin, entry.position_end, entry.position_end};
  if (entry.kind == EntryKind::kDecode) {
    rows.begin = length - 1;
    rows.end = std::min(rows.begin + entry.rows, entry.position_end);
    if (rows.begin >= rows.end) return result;  // ended meanwhile: the scheduler drops the result
    const uint64_t dice = s.sits_out ? random_() % 4 : 2;
    if (dice == 0) return result;
    if (dice > 1) result = Sample(entry.request, rows.end - rows.begin);
    rows.good = rows.begin + std::max(1, result.num_tokens);
  } else if (rows.end > length || entry.samples != (rows.end == length)) {
    Fail("request {} of {} tokens runs rows {}..{}", entry.request.index, length, rows.begin, rows.end);
    return result;
  }
  const bool resumes = entry.kind == EntryKind::kDecode ||
                       rows.begin > (entry.starts < 0 ? 0 : step.plan.run_from[static_cast<size_t>(entry.starts)]);
  if (resumes) CheckState(entry, rows);
  if (!config_.layers.kv_sources.empty()) {
    WriteGlobals(step, row, entry, rows);
    ReadGlobals(step, row, entry, rows.begin);
  }
  for (int layer = 0; layer < config_.layers.num_layers; ++layer) RunLayer(step, row, entry, layer, rows);
  // The row of one who sat out is run again.
  s.rows_done = entry.kind == EntryKind::kDecode ? rows.begin + result.num_tokens : rows.good;
  states_[static_cast<size_t>(entry.slot)] = s.signatures[static_cast<size_t>(s.rows_done - 1)];
  return entry.kind == EntryKind::kPrefill && entry.samples ? Sample(entry.request, 1) : result;
}

// Rows run without gaps, and the open compressor groups are those of the row before.
void FakeExecutor::CheckState(const PlanEntry& entry, const Rows& rows) {
  const Sequence& s = sequences_[entry.request.index];
  if (s.rows_done != rows.begin) {
    Fail("request {} runs row {} after row {}", entry.request.index, rows.begin, s.rows_done - 1);
  } else if (states_[static_cast<size_t>(entry.slot)] != s.signatures[static_cast<size_t>(rows.begin - 1)]) {
    Fail("slot {} holds the state of another sequence than request {}", entry.slot, entry.request.index);
  }
}

void FakeExecutor::WriteGlobals(const Step& step, const Row& row, const PlanEntry& entry, const Rows& rows) {
  const Sequence& s = sequences_[entry.request.index];
  for (int64_t p = std::max(rows.begin, entry.global_from); p < rows.end; ++p) {
    const auto block = static_cast<size_t>(step.ids[row.blocks_at + static_cast<size_t>(p / kBlockTokens)]);
    globals_[block * kBlockTokens + static_cast<size_t>(p % kBlockTokens)] =
        p < rows.good ? s.signatures[static_cast<size_t>(p)] : kEmpty;
    if (p % kBlockTokens == 0) replayed_[block] = entry.floor[kEarly] > 0;
  }
}

// The first and the last row of every block at or below the first new row.
void FakeExecutor::ReadGlobals(const Step& step, const Row& row, const PlanEntry& entry, int64_t begin) {
  const Sequence& s = sequences_[entry.request.index];
  const int64_t known = begin < entry.global_from ? begin - 1 : begin;  // rows of a replay write nothing global
  for (int64_t first = 0; first <= known; first += kBlockTokens) {
    const auto id = static_cast<size_t>(step.ids[row.blocks_at + static_cast<size_t>(first / kBlockTokens)]);
    for (const int64_t p : {first, std::min(first + kBlockTokens - 1, known)}) {
      if (globals_[id * kBlockTokens + static_cast<size_t>(p % kBlockTokens)] != s.signatures[static_cast<size_t>(p)]) {
        return Fail("request {} reads foreign global rows at {} (block {})", entry.request.index, p, id);
      }
    }
    if (replayed_[id] && s.replay != Replay::kBounded) Fail("request {} reads a replayed block", entry.request.index);
  }
}

void FakeExecutor::RunLayer(const Step& step, const Row& row, const PlanEntry& entry, int layer, const Rows& rows) {
  const Sequence& s = sequences_[entry.request.index];
  const kv::LayerGroup group = layer < group_layers_[kEarly] ? kEarly : kLate;
  int64_t write_from = rows.begin;
  int64_t attend_from = rows.begin;
  if (entry.starts >= 0) {
    const int32_t* starts = step.plan.run_from.data() + entry.starts;
    write_from = std::max<int64_t>(rows.begin, starts[layer]);
    attend_from = std::max<int64_t>(rows.begin, starts[layer + 1]);
  }
  const auto page_of = [&](int64_t p) -> kv::BlockId {
    const int64_t i = p / kBlockTokens - row.first[group];
    if (i < 0 || i >= static_cast<int64_t>(row.num_pages[group])) return kv::kNoBlock;
    return step.ids[row.pages_at[group] + static_cast<size_t>(i)];
  };
  for (int64_t p = write_from; p < rows.end;) {
    const kv::BlockId page = page_of(p);
    if (page == kv::kNoBlock)
      return Fail("request {} has no page for row {} of layer {}", entry.request.index, p, layer);
    const int64_t page_end = std::min(rows.end, (p / kBlockTokens + 1) * kBlockTokens);
    uint64_t* out = &WindowRow(group, layer, page, p);
    for (; p < page_end; ++p) *out++ = p < rows.good ? s.signatures[static_cast<size_t>(p)] : kEmpty;
  }
  if (attend_from >= rows.good) return;
  // Rows lie without gaps, so the two ends of the first row's window and of the last one's tell.
  for (const int64_t row_at : {attend_from, rows.good - 1}) {
    const int64_t oldest = std::max({row_at - (config_.layers.window - 1), entry.floor[group], int64_t{0}});
    for (const int64_t p : {oldest, row_at}) {
      const kv::BlockId page = page_of(p);
      if (page == kv::kNoBlock || WindowRow(group, layer, page, p) != s.signatures[static_cast<size_t>(p)]) {
        return Fail("request {}: layer {} at row {} reads a window row at {} that is not there", entry.request.index,
                    layer, row_at, p);
      }
    }
  }
}

void FakeExecutor::RunCopies(const StepPlan& plan) {
  for (const sched::Copy& copy : plan.copies) {
    const auto from = static_cast<size_t>(copy.from), to = static_cast<size_t>(copy.to);
    const auto piece = [&](std::vector<uint64_t>& memory, size_t size) {
      std::copy_n(memory.begin() + static_cast<ptrdiff_t>(from * size), size,
                  memory.begin() + static_cast<ptrdiff_t>(to * size));
    };
    switch (copy.kind) {
      case sched::CopyKind::kBlock:
        piece(globals_, kBlockTokens);
        replayed_[to] = replayed_[from];
        break;
      case sched::CopyKind::kEarlyPage:
        piece(windows_[kEarly], static_cast<size_t>(group_layers_[kEarly]) * kBlockTokens);
        break;
      case sched::CopyKind::kLatePage:
        piece(windows_[kLate], static_cast<size_t>(group_layers_[kLate]) * kBlockTokens);
        break;
      case sched::CopyKind::kState:
        states_[to] = states_[from];
        break;
    }
  }
}

// Commits 1 .. tokens_max tokens, fewer behind the stop.
sched::EntryResult FakeExecutor::Sample(sched::RequestId id, int64_t tokens_max) {
  sched::EntryResult result;
  result.first_token = static_cast<int32_t>(tokens_.size());
  if (tokens_max <= 0) return result;
  Sequence& s = Find(id);
  const int64_t count = 1 + static_cast<int64_t>(random_() % static_cast<uint64_t>(tokens_max));
  for (int64_t i = 0; i < count && !result.finished && !result.failed; ++i) {
    const int32_t token = NextToken(s.signatures.back(), s.choice);
    s.signatures.push_back(Extend(s.signatures.back(), token));
    tokens_.push_back(token);
    ++result.num_tokens;
    const bool stop = static_cast<int64_t>(s.signatures.size()) == s.stop_length;
    result.finished = stop && !s.fails;
    result.failed = stop && s.fails;
  }
  return result;
}

}  // namespace deepinfer::sim
