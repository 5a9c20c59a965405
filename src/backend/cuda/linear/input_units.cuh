// SPDX-License-Identifier: Apache-2.0
// What a thread of the packing kernels loads: eight values of a row, summed over spans, or made of gates and ups.
#pragma once

#include "backend/cuda/device/parts.cuh"
#include "backend/cuda/device/reduce.cuh"
#include "backend/cuda/linear/inputs.h"
#include "numeric/quantize.h"

namespace deepinfer::backend::cuda {

// The row of x that row `row` of the result is made of; -1: zeros.
__device__ inline int64_t SourceRow(const PackInputsParams& p, int64_t row) {
  if (row >= p.rows || p.row_map == nullptr) return row < p.rows ? row : -1;
  const int32_t mapped = p.row_map[row];
  return mapped < 0 || !p.keep_rows ? mapped : row;
}

// Eight values from value `at` of x on, of which `valid` exist.
__device__ inline void LoadValues(const PackInputsParams& p, int64_t at, int64_t valid, bool vectors, float (&v)[kUnit]) {
  if (p.x_bf16 != nullptr) {
    const uint16_t* codes = p.x_bf16 + at;
    if (vectors && valid >= kUnit) {
      const uint4 words = *reinterpret_cast<const uint4*>(codes);
      const uint32_t pairs[] = {words.x, words.y, words.z, words.w};
#pragma unroll
      for (int i = 0; i < kUnit; ++i) v[i] = __uint_as_float(i % 2 == 0 ? pairs[i / 2] << 16 : pairs[i / 2] & 0xFFFF0000u);
      return;
    }
#pragma unroll
    for (int i = 0; i < kUnit; ++i) v[i] = i < valid ? numeric::Bf16ToFloat(codes[i]) : 0.0f;
    return;
  }
  const float* x = p.x + at;
  if (vectors && valid >= kUnit) {
    const float4 a = reinterpret_cast<const float4*>(x)[0], b = reinterpret_cast<const float4*>(x)[1];
    v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w, v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
    return;
  }
#pragma unroll
  for (int i = 0; i < kUnit; ++i) v[i] = i < valid ? x[i] : 0.0f;
}

// The same, summed over the spans.
__device__ inline void LoadSpans(const PackInputsParams& p, int64_t at, int64_t valid, bool vectors, float (&v)[kUnit]) {
  LoadValues(p, at, valid, vectors, v);
  for (int s = 1; s < p.spans; ++s) {
    float more[kUnit];
    LoadValues(p, at + s * p.span_stride, valid, vectors, more);
#pragma unroll
    for (int i = 0; i < kUnit; ++i) v[i] += more[i];
  }
}

// Eight inputs of row `row` of the result, from value `at` of x on; valid: 0 for a row of zeros.
__device__ inline void LoadUnit(const PackInputsParams& p, int64_t row, int64_t at, int64_t valid, bool vectors, float (&v)[kUnit]) {
  LoadSpans(p, at, valid, vectors, v);
  if (!p.gated) return;
  const float weight = valid > 0 && p.row_weights != nullptr ? p.row_weights[row] : 1.0f;
  float ups[kUnit];
  LoadSpans(p, at + p.cols, valid, vectors, ups);
#pragma unroll
  for (int i = 0; i < kUnit; ++i) {
    const float gate = fminf(v[i], p.limit), up = fminf(fmaxf(ups[i], -p.limit), p.limit);
    v[i] = weight * gate / (1.0f + expf(-gate)) * up;
  }
}

// Whether rows of x, spans, and the ups behind the gates begin at multiples of 16 bytes.
inline bool LoadsVectors(const PackInputsParams& p) {
  const int64_t values = p.x_bf16 != nullptr ? 8 : 4;
  const auto address = reinterpret_cast<uintptr_t>(p.x) | reinterpret_cast<uintptr_t>(p.x_bf16);
  return address % 16 == 0 && p.x_stride % values == 0 && p.cols % values == 0 && p.span_stride % values == 0;
}

// Scale code of the FP8 block of 32 inputs that four neighbouring threads hold. All lanes must call.
__device__ inline uint8_t BlockScale(const float (&v)[kUnit]) {
  float amax = 0.0f;
#pragma unroll
  for (int i = 0; i < kUnit; ++i) amax = fmaxf(amax, fabsf(v[i]));
  amax = fmaxf(amax, __shfl_xor_sync(kAllLanes, amax, 1));
  amax = fmaxf(amax, __shfl_xor_sync(kAllLanes, amax, 2));
  return numeric::Fp8Scale(amax);
}

}  // namespace deepinfer::backend::cuda
