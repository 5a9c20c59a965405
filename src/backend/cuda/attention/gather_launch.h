// SPDX-License-Identifier: Apache-2.0
// Sparse attention of many rows: all keys that they can see are decoded once, and gathered by each row (gather_attention_sm90.cu). The
// bits are those of the kernel that decodes for each row.
#pragma once

#include "backend/cuda/attention/sparse_shared_sm90.cuh"
#include "backend/cuda/context.h"

namespace deepinfer::backend::cuda {

// Runs of neighbouring rows of one request, and where their decoded keys lie: window keys, then latents.
struct DecodedRuns {
  static constexpr int kRunsMax = 1024;

  int32_t first_window[kRunsMax];  // position
  int32_t requests[kRunsMax];
  int32_t window_keys[kRunsMax];
  int32_t begins[kRunsMax];        // of keys, in number of keys
  int32_t num_runs;
  int32_t num_keys;                // 0: too many; rows decode for themselves
};

// Keys as the tensor cores take them, 1,024 bytes each; number 0 is all zeros.
struct DecodedKeys {
  uint8_t* keys;
  DecodedRuns* runs;
  int2* begins;  // [rows]: what a window position, or a latent, has to be added to
  int32_t keys_max;
};

// At most so many decoded keys pay, the zeros among them; 0: too few rows. The device then decides.
int32_t DecodedKeysMax(const sparse::SparseParams& p);

// keys.keys is nullptr, with the error recorded, where memory is short.
DecodedKeys DecodeKeys(Context& context, const sparse::SparseParams& p, int32_t keys_max);

// Does nothing where no keys are decoded.
void GatherAttention(Context& context, const sparse::SparseParams& p, const DecodedKeys& keys);

}  // namespace deepinfer::backend::cuda
