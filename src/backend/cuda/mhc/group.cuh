// SPDX-License-Identifier: Apache-2.0
// What a warp makes of 16 rows and a group of 16 channels of every stream: products of all outputs by mma.sync, whose M are the rows
// and N the outputs; square sums; the collapsed channels. Both kernels of the mixes are built of it, so their bits are the same.
//
// Lane g * 4 + c holds four channels in a row, 4 c .. 4 c + 3, of rows g and g + 8 of the product, and the same channels of the weights of
// outputs g, g + 8, g + 16. Which of the 16 rows is which of the product is up to the kernel. Which channel is which K of a product is
// free: K c of a step is channel 4 c + 2 step, K c + 4 the one behind it. So operands are what a lane loads by 16 bytes, and four lanes
// store 64 bytes of a row at once.
#pragma once

#include "backend/api/ops.h"
#include "backend/cuda/device/reduce.cuh"
#include "backend/cuda/mhc/mhc_tensor.h"
#include "backend/cuda/ptx/mma.cuh"

namespace deepinfer::backend::cuda {

constexpr int kGroup = 16;  // channels
constexpr int kSliceGroups = 10;
constexpr int kMixRows = 16;
constexpr int kOutputTiles = kHcOutputs / 8;

// TF32 parts of a value; their sum is the value but for its last two bits.
struct TfParts {
  uint32_t high;
  uint32_t low;
};
__device__ inline TfParts Split(float value) {
  constexpr uint32_t kTf32 = 0xFFFFE000u;
  const uint32_t high = __float_as_uint(value) & kTf32;
  return {high, __float_as_uint(value - __uint_as_float(high)) & kTf32};
}

__device__ inline float QuadSum(float value) {
  value += __shfl_xor_sync(kAllLanes, value, 1);
  return value + __shfl_xor_sync(kAllLanes, value, 2);
}

// What a lane holds of a tile's results, of a group or added up: outputs as mma.sync leaves them, square sums of its two rows.
struct Results {
  float outputs[kOutputTiles][4];
  float row[2];
  float collapsed[2];
};

// Calls store(h, o, value) for each of the lane's results.
template <typename Store>
__device__ void ForResults(const Results& results, const Store& store) {
  const int c = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
#pragma unroll
    for (int t = 0; t < kOutputTiles; ++t) {
#pragma unroll
      for (int e = 0; e < 2; ++e) store(h, t * 8 + 2 * c + e, results.outputs[t][2 * h + e]);
    }
    if (c == 0) store(h, kHcOutputs, results.row[h]);
    if (c == 1) store(h, kHcOutputs + 1, results.collapsed[h]);
  }
}

// One group: Stream is called for each stream in order.
struct GroupSums {
  float high[kOutputTiles][4] = {};  // high x high
  float low[kOutputTiles][4] = {};   // the mixed products
  float4 mixed[2] = {};              // the lane's channels, collapsed
  float squares[2] = {};

  // x: of the lane's two rows; w: of its outputs; collapse: the rows' weights of this stream.
  __device__ void Stream(const float4 (&x)[2], const float4 (&w)[kOutputTiles], const float (&collapse)[2]) {
    Multiply({x[0].x, x[1].x, x[0].y, x[1].y}, w, [](const float4& v) { return make_float2(v.x, v.y); });
    Multiply({x[0].z, x[1].z, x[0].w, x[1].w}, w, [](const float4& v) { return make_float2(v.z, v.w); });
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      Collapse(x[h].x, collapse[h], h, mixed[h].x);
      Collapse(x[h].y, collapse[h], h, mixed[h].y);
      Collapse(x[h].z, collapse[h], h, mixed[h].z);
      Collapse(x[h].w, collapse[h], h, mixed[h].w);
    }
  }

  __device__ Results Finish() const {
    Results results;
#pragma unroll
    for (int t = 0; t < kOutputTiles; ++t) {
#pragma unroll
      for (int e = 0; e < 4; ++e) results.outputs[t][e] = high[t][e] + low[t][e];
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float collapsed = mixed[h].x * mixed[h].x;
      collapsed = __fmaf_rn(mixed[h].y, mixed[h].y, collapsed);
      collapsed = __fmaf_rn(mixed[h].z, mixed[h].z, collapsed);
      collapsed = __fmaf_rn(mixed[h].w, mixed[h].w, collapsed);
      results.row[h] = QuadSum(squares[h]);
      results.collapsed[h] = QuadSum(collapsed);
    }
    return results;
  }

 private:
  struct Inputs {
    float of[4];
  };

  // Eight channels, of which pair gives a lane's two of a weight.
  template <typename Pair>
  __device__ void Multiply(const Inputs& x, const float4 (&w)[kOutputTiles], const Pair& pair) {
    uint32_t x_high[4], x_low[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const TfParts parts = Split(x.of[i]);
      x_high[i] = parts.high;
      x_low[i] = parts.low;
    }
#pragma unroll
    for (int t = 0; t < kOutputTiles; ++t) {
      const float2 of_output = pair(w[t]);
      const TfParts b0 = Split(of_output.x), b1 = Split(of_output.y);
      ptx::MmaTf32(high[t], x_high, b0.high, b1.high);
      ptx::MmaTf32(low[t], x_high, b0.low, b1.low);
      ptx::MmaTf32(low[t], x_low, b0.high, b1.high);
    }
  }

  __device__ void Collapse(float value, float weight, int h, float& to) {
    squares[h] = __fmaf_rn(value, value, squares[h]);
    to = __fmaf_rn(weight, value, to);
  }
};

// A row's four channels of every stream expanded, in the order of operations of HcExpandKernel.
__device__ inline void Expand(const float4& of_y, const float4 (&of_x)[kHcStreams], const float4& y, float4 (&x)[kHcStreams]) {
  const float post[kHcStreams] = {of_y.x, of_y.y, of_y.z, of_y.w};
  float4 expanded[kHcStreams];
#pragma unroll
  for (int k = 0; k < kHcStreams; ++k) expanded[k] = make_float4(post[k] * y.x, post[k] * y.y, post[k] * y.z, post[k] * y.w);
#pragma unroll
  for (int j = 0; j < kHcStreams; ++j) {
    const float comb[kHcStreams] = {of_x[j].x, of_x[j].y, of_x[j].z, of_x[j].w};
#pragma unroll
    for (int k = 0; k < kHcStreams; ++k) {
      expanded[k].x += comb[k] * x[j].x;
      expanded[k].y += comb[k] * x[j].y;
      expanded[k].z += comb[k] * x[j].z;
      expanded[k].w += comb[k] * x[j].w;
    }
  }
#pragma unroll
  for (int k = 0; k < kHcStreams; ++k) x[k] = expanded[k];
}

}  // namespace deepinfer::backend::cuda
