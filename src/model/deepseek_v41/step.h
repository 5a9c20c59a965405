// SPDX-License-Identifier: Apache-2.0
// What one forward pass is asked to do, as plain data: which positions of which requests, from which layer on each of
// them is needed, and where the caches lie. Made by the engine, read by the model (forward.h).
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "backend/api/backend.h"

namespace deepinfer::model::deepseek_v41 {

// Slots of a request's open-group ring in every compressor: a run of drafted rows that is thrown away must not reach
// the tokens before it, so there is room for more rows than any step drafts.
inline constexpr int32_t kCompressorRing = 16;

// Consecutive positions [begin, end) of one request.
//
// run_from has num_layers + 1 entries, ascending: layer l writes window rows (and, if it is a KV source, global rows)
// for positions >= run_from[l], and runs attention and experts for positions >= run_from[l + 1]. All zero: everything
// runs. Nothing above may be needed that was not computed: spec/model.md section 8 has the formulas.
struct Segment {
  int32_t request = 0;  // row of the step's cache tables
  int32_t begin = 0;
  int32_t end = 0;
  std::span<const int32_t> run_from;      // [num_layers + 1]
  std::span<const int32_t> window_floor;  // [num_layers]: attention of layer l reads no window row below this position
  int32_t global_floor = 0;               // global rows whose last token lies below this position are left alone
};

struct Step {
  std::span<const Segment> segments;  // at most one per request, in any order
  // For each row (segments one after the other): the token and the ngram_max - 1 before it; -1 where the sequence
  // starts or an image token blocks the view (that token itself included). [rows, lookback], lookback >= 1.
  std::span<const int32_t> tokens;
  // Token ids to embed [rows]; differs from tokens[.., 0] at image rows only, where any valid id will do.
  std::span<const int32_t> ids;
  std::span<const uint8_t> is_image;  // [rows] or empty: rows of an image span
  const float* embeds = nullptr;      // device [rows, hidden]: replace the embedding of image rows; nullptr: none
  // Rows whose logits are wanted, ascending; each must reach the end of the stack.
  std::span<const int32_t> logit_rows;
  bool more_logits = false;  // Model::Logits will ask for further ones
};

// Where the caches of this step's requests lie (device tables inside the views).
struct Caches {
  std::vector<backend::WindowCache> windows;  // [num_layers]
  std::vector<backend::GlobalCache> globals;  // one for each KV source, in order
  std::vector<float*> compressor_state;       // the same; nullptr where the ratio is 1
  const int32_t* ring_slots = nullptr;        // device [requests]
  bool operator==(const Caches&) const = default;
};

// A look at what passes by, for tests and tools. `rows` are the batch rows that `data` holds, row after row. The data is
// the device's: synchronise and copy before reading on a backend that is no CPU.
enum class Tap { kStreams, kSelected, kExperts, kEngramRows, kDraftTaps };
using TapFn = std::function<void(Tap tap, int64_t layer, std::span<const int32_t> rows, const void* data, int64_t row_bytes)>;

}  // namespace deepinfer::model::deepseek_v41
