// SPDX-License-Identifier: Apache-2.0
// Sorts the (row, choice) slots of a batch by expert, for a grouped matrix product. A position is a row of the sorted
// batch; the positions of an expert begin at a multiple of 8 and follow its slots in ascending order.
#pragma once

#include "backend/cuda/context.h"
#include "backend/cuda/linear/gemm.h"

namespace deepinfer::backend::cuda {

struct DispatchParams {
  int64_t rows = 0;
  int64_t topk = 0;
  int64_t num_experts = 0;            // at most kDispatchExpertsMax
  int tile_tokens = 8;                // of a token tile
  int rest_tokens = 0;                // an expert's last tile of at most so many tokens goes to `rest`
  const int32_t* chosen = nullptr;    // [rows, topk]
  const float* weights = nullptr;     // [rows, topk]
};

inline constexpr int64_t kDispatchExpertsMax = 1024;

struct Dispatch {
  bool ok = false;                      // false: no memory, the error is recorded
  int64_t positions = 0;                // upper bound, a multiple of 8
  int64_t num_tiles = 0;                // upper bound
  int32_t* row_of_position = nullptr;   // [positions], -1: padding
  float* weight_of_position = nullptr;  // [positions]
  int32_t* position_of_slot = nullptr;  // [rows, topk]
  TokenTile* tiles = nullptr;           // [num_tiles], unused ones with 0 rows
  int64_t num_rest = 0;                 // upper bound
  TokenTile* rest = nullptr;            // [num_rest], as tiles
};

// In scratch memory of the current op.
Dispatch MakeDispatch(Context& context, const DispatchParams& p);

struct CombineParams {
  int64_t rows = 0;
  int64_t topk = 0;
  int64_t hidden = 0;
  const float* outputs = nullptr;             // [positions, hidden]
  const uint16_t* outputs_bf16 = nullptr;     // the same in bf16, in place of them
  const int32_t* position_of_slot = nullptr;  // [rows, topk]
  const float* shared = nullptr;              // [shared_spans, rows, hidden] or nullptr: spans of its sums, added up first
  int shared_spans = 1;
  float* y = nullptr;                         // [rows, hidden]
};

// y = sum over the choices in order, then the shared expert.
void Combine(Context& context, const CombineParams& p);

}  // namespace deepinfer::backend::cuda
