// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/linear/inputs.h"

#include "backend/cuda/device/parts.cuh"
#include "backend/cuda/device/reduce.cuh"
#include "backend/cuda/launch_after.h"
#include "backend/cuda/linear/packed.h"
#include "backend/cuda/ptx/grid.cuh"
#include "numeric/quantize.h"

namespace deepinfer::backend::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kBlockChunks = 4;

// FP8 round trip of the block of 32 channels that four neighbouring threads hold.
__device__ void RoundTripFp8(float (&v)[kUnit]) {
  float amax = 0.0f;
#pragma unroll
  for (int i = 0; i < kUnit; ++i) amax = fmaxf(amax, fabsf(v[i]));
  amax = fmaxf(amax, __shfl_xor_sync(kAllLanes, amax, 1));
  amax = fmaxf(amax, __shfl_xor_sync(kAllLanes, amax, 2));
  const float scale = numeric::E8m0ToFloat(numeric::Fp8Scale(amax));
#pragma unroll
  for (int i = 0; i < kUnit; ++i) v[i] = numeric::E4m3ToFloat(numeric::FloatToE4m3(v[i] / scale)) * scale;
}

// Eight values of a row from `x` on, of which `valid` exist.
__device__ void LoadValues(const float* x, int64_t valid, bool vectors, float (&v)[kUnit]) {
  if (vectors && valid >= kUnit) {
    const float4 a = reinterpret_cast<const float4*>(x)[0], b = reinterpret_cast<const float4*>(x)[1];
    v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w, v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
    return;
  }
#pragma unroll
  for (int i = 0; i < kUnit; ++i) v[i] = i < valid ? x[i] : 0.0f;
}

// The same, summed over the spans.
__device__ void LoadUnit(const PackInputsParams& p, const float* x, int64_t valid, bool vectors, float (&v)[kUnit]) {
  LoadValues(x, valid, vectors, v);
  for (int s = 1; s < p.spans; ++s) {
    float more[kUnit];
    LoadValues(x + s * p.span_stride, valid, vectors, more);
#pragma unroll
    for (int i = 0; i < kUnit; ++i) v[i] += more[i];
  }
}

// A block packs the atoms of a row group in four chunks: grid (row groups, chunks of all problems / 4). One thread a unit.
// vectors: rows of x, spans, and the ups behind the gates, begin at multiples of 16 bytes.
__global__ void __launch_bounds__(kThreads) PackInputsKernel(PackInputsParams p, int parts, int chunks, bool vectors, uint8_t* out) {
  ptx::GridBegin();
  const int t = static_cast<int>(threadIdx.x), unit = t % kUnit, row_in_group = t / kUnit % kGroupRows;
  const int problem_chunk = static_cast<int>(blockIdx.y) * kBlockChunks + t / (kUnit * kGroupRows);
  const int problem = p.problems == 1 ? 0 : problem_chunk / chunks, chunk = problem_chunk - problem * chunks;
  if (problem >= p.problems || chunk >= chunks) return;  // whole warps: an atom is two warps
  const int64_t row = int64_t{blockIdx.x} * kGroupRows + row_in_group;
  int64_t source = row < p.rows ? row : -1;
  if (source >= 0 && p.row_map != nullptr) {
    const int32_t mapped = p.row_map[row];
    source = mapped < 0 || !p.keep_rows ? mapped : row;
  }
  float v[kUnit] = {};
  const int64_t col = int64_t{chunk} * kChunkCols + unit * kUnit, valid = source >= 0 ? p.cols - col : 0;
  const float* x = p.x + source * p.x_stride + problem * p.cols + col;
  LoadUnit(p, x, valid, vectors, v);
  if (p.gated) {
    const float weight = source >= 0 && p.row_weights != nullptr ? p.row_weights[row] : 1.0f;
    float ups[kUnit] = {};
    LoadUnit(p, x + p.cols, valid, vectors, ups);
#pragma unroll
    for (int i = 0; i < kUnit; ++i) {
      const float gate = fminf(v[i], p.limit), up = fminf(fmaxf(ups[i], -p.limit), p.limit);
      v[i] = weight * gate / (1.0f + expf(-gate)) * up;
    }
  }
  if (p.activations == Activations::kFp8) RoundTripFp8(v);
  const int64_t row_groups = gridDim.x;
  uint8_t* atom = out + (problem_chunk * parts * row_groups + blockIdx.x) * kAtomBytes + row_in_group * 128 + (unit ^ row_in_group) * 16;
  for (int part = 0; part < parts; ++part) *reinterpret_cast<uint4*>(atom + part * row_groups * kAtomBytes) = TakePart(v);
}

}  // namespace

PackedInputs InputsAt(const void* data, int64_t rows, Activations activations) {
  return {.data = static_cast<uint8_t*>(const_cast<void*>(data)), .part_bytes = PartBytes(rows), .parts = NumParts(activations)};
}

PackedInputs RoomForInputs(Context& context, int64_t rows, int64_t chunks, Activations activations) {
  return InputsAt(context.Take<uint8_t>(chunks * NumParts(activations) * PartBytes(rows)), rows, activations);
}

PackedInputs PackInputs(Context& context, const PackInputsParams& p) {
  const int64_t groups = (p.rows + kGroupRows - 1) / kGroupRows, chunks = p.problems * NumChunks(p.cols);
  const PackedInputs packed = p.into != nullptr ? InputsAt(p.into, p.rows, p.activations)
                                                : RoomForInputs(context, p.rows, chunks, p.activations);
  if (packed.data == nullptr) return packed;
  const bool vectors = reinterpret_cast<uintptr_t>(p.x) % 16 == 0 && p.x_stride % 4 == 0 && p.cols % 4 == 0 && p.span_stride % 4 == 0;
  const dim3 grid(static_cast<unsigned>(groups), static_cast<unsigned>((chunks + kBlockChunks - 1) / kBlockChunks));
  LaunchAfter(context, PackInputsKernel, grid, kThreads, 0, p, packed.parts, static_cast<int>(NumChunks(p.cols)), vectors, packed.data);
  return packed;
}

}  // namespace deepinfer::backend::cuda
