// SPDX-License-Identifier: Apache-2.0
// A row of inputs for aligned matrices (linear/input_place.h), by the threads of a block: MXFP8 codes of each block of 32 first, then all
// relative to the largest of their scales.
#pragma once

#include "backend/cuda/device/reduce.cuh"
#include "backend/cuda/linear/input_place.h"
#include "backend/cuda/ptx/e4m3.cuh"
#include "numeric/quantize.h"

namespace deepinfer::backend::cuda {

// 2^(code - 127), code in 1 .. 254.
__device__ inline float PowerOfTwo(int code) { return __uint_as_float(static_cast<uint32_t>(code) << 23); }

// What values of a block with this scale code are multiplied with before they become codes.
__device__ inline float ScaleInverse(int scale) { return PowerOfTwo(254 - scale); }

// Four codes.
__device__ inline uint32_t EncodeE4m3(float a, float b, float c, float d) { return ptx::PackE4m3x2(a, b) | ptx::PackE4m3x2(c, d) << 16; }

// Four codes of a block of scale `scale`, relative to the row's, `most`.
__device__ inline uint32_t AlignE4m3(uint32_t codes, int scale, int most) {
  if (scale == most) return codes;
  const float by = PowerOfTwo(max(127 - (most - scale), 1));
  float v[4];
  ptx::UnpackE4m3x2(codes, &v[0], &v[1]);
  ptx::UnpackE4m3x2(codes >> 16, &v[2], &v[3]);
  return EncodeE4m3(v[0] * by, v[1] * by, v[2] * by, v[3] * by);
}

// Of all inputs of `rows` rows: where their scales begin, behind the atoms.
__device__ inline float* AlignedRowScales(void* inputs, int64_t cols, int64_t rows) {
  return reinterpret_cast<float*>(static_cast<uint8_t*>(inputs) + cols / kAlignedChunkCols * PartBytes(rows));
}

}  // namespace deepinfer::backend::cuda
