// SPDX-License-Identifier: Apache-2.0
// From scores to softmax weights, as both kernels of sparse attention do it: a thread of a warpgroup has, of a tile's 64 heads and 64
// keys, the accumulators of one wgmma.
#pragma once

#include "backend/cuda/attention/sparse_shared_sm90.cuh"
#include "backend/cuda/ptx/bf16.cuh"
#include "backend/cuda/ptx/wgmma_sm90.cuh"

namespace deepinfer::backend::cuda::sparse {

constexpr float kSlack = 8.0f;

using Scores = float[32];           // [key / 8][h][key % 2] of a tile
using Weights = uint32_t[4][4];     // [step of 16 keys][register]

__device__ inline float Exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ inline float QuadMax(float value) {
  value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, 1));
  return fmaxf(value, __shfl_xor_sync(kAllLanes, value, 2));
}
__device__ inline float QuadSum(float value) {
  value += __shfl_xor_sync(kAllLanes, value, 1);
  return value + __shfl_xor_sync(kAllLanes, value, 2);
}

// The first of a thread's two heads (h = 0, 1: 8 apart).
__device__ inline int Head() { return static_cast<int>(threadIdx.x) % kWarpgroup / kWarp * 16 + static_cast<int>(threadIdx.x) % kWarp / 4; }
__device__ inline bool LeadsWarp() { return threadIdx.x % kWarp == 0; }

// A descriptor as its upper word and a lower word that a step in shared memory is added to. The exchange tells ptxas that the
// word is uniform, and keeps it from computing the descriptors of all steps before the loop, for which there are no registers.
struct Operand {
  uint32_t low;
  uint32_t high;

  __device__ explicit Operand(uint64_t descriptor)
      : low(__shfl_sync(kAllLanes, static_cast<uint32_t>(descriptor), 0)), high(static_cast<uint32_t>(descriptor >> 32)) {}
  __device__ uint64_t At(uint32_t bytes) const { return uint64_t{high} << 32 | (low + (bytes >> 4)); }
};

// Waits for what producers write in each pair, or item.
__device__ inline void WaitForData(uint64_t* barrier, uint32_t phase) {
  ptx::BarrierWait(barrier, phase);
  ptx::FenceAsyncShared();
}

// Starts the products of half of a tile's channels with the query's, whose runs of 64 begin at these shared addresses.
__device__ inline void StartHalfScores(uint32_t query_half, uint32_t keys_half, Scores& s) {
  const Operand query{ptx::SwizzledOperand(query_half)}, keys{ptx::SwizzledOperand(keys_half)};
  ptx::WgmmaFence();
#pragma unroll
  for (int step = 0; step < kDim / 2 / 16; ++step) {
    const uint32_t at = step / 4 * kChunkBytes + step % 4 * 32;
    ptx::WgmmaShared<false>(s, query.At(at), keys.At(at));
  }
  ptx::WgmmaCommit();
}

// A thread's two heads of the running softmax.
struct Running {
  float top[2];
  float sum[2];
  float factor[2];  // of the last move

  __device__ void MoveTo(int h, float to) {
    factor[h] = Exp2(top[h] - to);
    top[h] = to;
    sum[h] *= factor[h];
  }
};

// The largest score of each head, times scale; keys from `valid` on do not count.
__device__ inline void Maxima(int valid, float scale, Scores& s, float (&top)[2]) {
  if (valid < kTileKeys) {
    const int c = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
    for (int i = 0; i < 32; ++i) s[i] = i / 4 * 8 + 2 * c + i % 2 < valid ? s[i] : -INFINITY;
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float best = -INFINITY;
#pragma unroll
    for (int i = 0; i < 32; ++i) best = i / 2 % 2 == h ? fmaxf(best, s[i]) : best;
    top[h] = QuadMax(best) * scale;
  }
}

__device__ inline float Moved(float top, float best) { return best > top + kSlack ? best : top; }

// Turns scores into weights, and adds them up: a thread's sums are those of its tiles, each added up by itself.
__device__ inline void Weigh(float scale, Scores& s, const float (&top)[2], Weights& a, float (&sum)[2]) {
  sum[0] = sum[1] = 0.0f;
#pragma unroll
  for (int j = 0; j < 8; ++j) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float& x = s[4 * j + 2 * h];
      float& y = s[4 * j + 2 * h + 1];
      x = Exp2(__fmaf_rn(x, scale, -top[h]));
      y = Exp2(__fmaf_rn(y, scale, -top[h]));
      sum[h] += x + y;
      a[j / 2][j % 2 * 2 + h] = ptx::PackBf16x2(x, y);
    }
  }
}

// Hands weights, times factor, to the other warpgroup; a signal follows.
__device__ inline void StoreWeights(const Weights& a, const float (&factor)[2], uint8_t* out) {
  const int c = static_cast<int>(threadIdx.x) % 4, head = Head();
#pragma unroll
  for (int j = 0; j < 8; ++j) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const uint32_t pair = a[j / 2][j % 2 * 2 + h];
      *reinterpret_cast<uint32_t*>(out + UnitOffset(head + 8 * h, j) + 4 * c) =
          ptx::PackBf16x2(__uint_as_float(pair << 16) * factor[h], __uint_as_float(pair & 0xFFFF0000u) * factor[h]);
    }
  }
  ptx::FenceAsyncShared();
}

// Valid keys of a tile.
__device__ inline int Valid(int tile, int window, int latents) {
  const int window_tiles = Tiles(window);
  return tile < window_tiles ? window - tile * kTileKeys : latents - (tile - window_tiles) * kTileKeys;
}

}  // namespace deepinfer::backend::cuda::sparse
