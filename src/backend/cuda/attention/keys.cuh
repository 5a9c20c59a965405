// SPDX-License-Identifier: Apache-2.0
// Which keys a row attends to.
#pragma once

#include "backend/api/ops.h"
#include "backend/cuda/device/cache.cuh"

namespace deepinfer::backend::cuda {

// The list of keys of a row: window positions ascending, then the chosen latents in their order.
struct Keys {
  int first;    // position of the first window key
  int window;   // window keys
  int count;    // all keys
};

__device__ inline Keys FindKeys(const AttentionParams& p, int64_t row) {
  const int position = p.positions[row];
  const int first = max(max(position - p.window + 1, p.window_floor[row]), 0);
  const int window = max(position - first + 1, 0);
  return {first, window, window + (p.has_latents ? p.selected_count[row] : 0)};
}

}  // namespace deepinfer::backend::cuda
