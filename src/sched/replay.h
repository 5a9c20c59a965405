// SPDX-License-Identifier: Apache-2.0
// From which token on does layer l run? One mechanism for prefix hits, for resumed requests and for the layers behind
// the last KV source in prefill (spec: "Rebuilding the windows: bounded, and exact at bounded cost").
//
// A layer's window rows at token t are a function of the stream that enters it there, and row t of its output reads the
// window rows t-W+1 .. t. So to get the rows from `a` on out of the top, layer l needs its stream from r[l] on:
//
//   r[L] = a;   r[l] = max(0, min(r[l+1] - (W-1), P if layer l is a KV source))      P = tokens whose blocks were hit
//
// Layer l writes window rows from r[l] on and runs attention and experts from r[l+1] on. Rows below P write no global
// rows. Example, W = 128, L = 40, hit P = 8192 of 10,000 tokens, a = 9,999: layer 39 runs on one row, layer 38 on 128,
// and so on; layer 20, the last KV source, must see all rows from 8192 on, layer 0 those from 5525 on.
//
// Layers up to the last KV source are *early*, those behind it (and the draft stages) *late*; kv/prefix keeps window
// snapshots for either group. Pure functions; thread-safe; no allocation.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "kv/prefix/window_snapshots.h"

namespace deepinfer::sched {

// How windows are rebuilt, and how much of a prompt the late layers see. A request keeps its setting for life.
enum class Replay : uint8_t {
  kNone,     // every layer on every row, no hits: the yardstick, and what prompt logprobs need
  kExact,    // the same bits as kNone
  kDecoder,  // late layers see the last W prompt rows and all generated ones; early windows as in kExact
  kBounded,  // kDecoder, and after a hit windows of the early layers that begin W tokens before it: the result depends
             // on the hit
};

struct LayerShape {
  int32_t num_layers = 0;
  int32_t window = 1;               // W: positions a row sees, its own included
  std::vector<int32_t> kv_sources;  // ascending

  // First late layer; num_layers where the last layer is a KV source, 0 where no layer is one.
  int32_t first_late() const { return kv_sources.empty() ? 0 : kv_sources.back() + 1; }
};

struct ReplayInput {
  Replay setting = Replay::kExact;
  int64_t prompt_length = 0;    // of the request when it came, however much it has generated since
  int64_t length = 0;           // tokens known now: their rows up to length - 1 run, the last one's logits are wanted
  int64_t hit = 0;              // P: rows below it have their global rows; a multiple of 128, < length; 0 for kNone
  bool early_snapshot = false;  // window pages of that group are at hand that end at `hit`
  bool late_snapshot = false;
  // kExact: all windows are to be complete at this position (hit <= keep_at <= length), to be kept there. 0: nowhere.
  int64_t keep_at = 0;
};

struct ReplayStarts {
  int64_t first_row = 0;  // lowest stream start: rows from here to length - 1 run
  // Attention of a group's layers sees nothing below this position (window_floor of the kernels).
  std::array<int64_t, kv::kLayerGroups> floor{};
  // From here on window rows are complete in every layer of the group, pages of snapshots included. The draft stages
  // read nothing below the late one. Under kDecoder and kBounded "complete" means as the setting defines them.
  std::array<int64_t, kv::kLayerGroups> windows_from{};
  // Whether the pages at hand are used; they then stand before the rows of this request in its page table.
  std::array<bool, kv::kLayerGroups> uses_snapshot{};
  int64_t token_layers = 0;  // sum over layers of the rows that run there: the cost
};

// Fills run_from[0 .. num_layers] with r. REQUIRES: that many places, and the ranges stated above.
ReplayStarts ComputeReplay(const LayerShape& shape, const ReplayInput& input, std::span<int32_t> run_from);

// Whether a hit of `hit` tokens may be taken for a request of that setting (whole blocks and below `length` in any
// case). Under kDecoder the rows of the late layers begin at prompt_length - W, so a hit that ends between there and
// the end of the prompt would have to run them below itself for nothing.
bool HitAllowed(const LayerShape& shape, Replay setting, int64_t prompt_length, int64_t hit);

}  // namespace deepinfer::sched
