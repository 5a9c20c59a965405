// SPDX-License-Identifier: Apache-2.0
// What one step computes, and what came of it: plain data between the scheduler and whoever executes steps on a model.
//
// Order of a step: `copies`' sources are read after the forward pass of the same step and before any later one:
//   1. forward over all rows;  2. copies (forks);  3. select: sampling on the rows of entries with `samples`, and once
//   more for each fork, from the logits of its leader's last row.
// Steps run in the order of their plans. A plan may be made and queued before the steps before it are done.
//
// Positions. A prefill entry names its positions. A decode entry cannot: how many tokens earlier steps in flight commit
// is not known yet. With `length` = tokens that the request has when the step begins, on the device, it means
//   row i, 0 <= i < rows:  position length - 1 + i;  input: the newest token for i = 0, draft i - 1 behind it,
// without the rows at or above position_end. Room is reserved for the worst case, so fewer drafts may run than planned.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "kv/prefix/window_snapshots.h"

namespace deepinfer::sched {

// Names a request for as long as the process lives; never reused.
struct RequestId {
  uint32_t index = 0;       // of its record; small, reused
  uint32_t generation = 0;  // tells those that used the same record apart

  bool operator==(const RequestId&) const = default;
};

// Late pages hold rows of the draft stages too. An executor that has such stages fills them for every request, drafts
// or not, because pages are passed on as snapshots.

enum class EntryKind : uint8_t { kPrefill, kDecode };

// The rows of one request in a step.
struct PlanEntry {
  RequestId request;
  int32_t slot = 0;  // its row in the tables, and its place in all that the executor keeps per running request
  EntryKind kind = EntryKind::kPrefill;
  bool samples = false;      // prefill: the last row's logits give a token; decode: always
  int32_t newest = -1;       // prefill: the token behind its rows, where that one will run as a decode (firm drafts)
  int32_t rows = 0;          // decode: 1 + drafts at most
  int32_t first_row = 0;     // place in the batch: rows of an entry are neighbours
  int64_t begin = -1;        // prefill: position of row 0; decode: -1
  int64_t position_end = 0;  // no row at or above it; cache rows are reserved up to here
  // Prefill: layer l writes window rows from position run_from[starts + l] on and runs attention and experts from
  // run_from[starts + l + 1] on. -1: every layer on every row.
  int32_t starts = -1;
  int64_t global_from = 0;  // rows below it write no global rows
  // Attention of the layer group reads no window row below this position.
  std::array<int64_t, kv::kLayerGroups> floor{};
  // The draft stages read no window row below this position.
  int64_t draft_floor = 0;
};

// A further choice of a request begins: its first token is drawn in this step from the last row of `entry`.
struct Fork {
  int32_t entry = 0;  // index in StepPlan::entries
  RequestId request;
  int32_t slot = 0;
};

// A whole piece of cache memory to copy. kState: all that the executor keeps for a slot about the sequence (open
// compressor groups, newest token ids, penalties' counts), in every layer.
enum class CopyKind : uint8_t { kBlock, kEarlyPage, kLatePage, kState };
struct Copy {
  CopyKind kind = CopyKind::kBlock;
  int32_t from = 0;
  int32_t to = 0;
};

struct StepPlan {
  int64_t step = 0;  // counts up from 0
  int32_t rows = 0;
  std::vector<PlanEntry> entries;  // decodes first
  std::vector<Fork> forks;
  std::vector<Copy> copies;
  std::vector<int32_t> run_from;  // num_layers + 1 numbers for each prefill entry that needs them

  void Clear() {
    step = 0;
    rows = 0;
    entries.clear();
    forks.clear();
    copies.clear();
    run_from.clear();
  }
};

// What came of an entry or a fork.
struct EntryResult {
  bool failed = false;    // the request cannot go on; what follows is ignored
  bool finished = false;  // it ends with these tokens: a stop rule, a limit of the caller
  // Committed tokens, in StepResult::tokens. Prefill with samples, and forks: one. Decode: 1 .. rows, accepted drafts
  // first, cut behind a stop; or none: it sat out, and a later step runs the same row. Prefill without samples: none.
  int32_t first_token = 0;
  int32_t num_tokens = 0;
};

struct StepResult {
  int64_t step = 0;
  std::span<const EntryResult> entries;  // as in the plan
  std::span<const EntryResult> forks;
  std::span<const int32_t> tokens;
};

}  // namespace deepinfer::sched
