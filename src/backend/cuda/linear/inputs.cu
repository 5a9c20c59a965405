// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/linear/inputs.h"

#include "backend/cuda/device/reduce.cuh"
#include "backend/cuda/launch_after.h"
#include "backend/cuda/linear/packed.h"
#include "backend/cuda/ptx/bf16.cuh"
#include "backend/cuda/ptx/grid.cuh"
#include "numeric/quantize.h"

namespace deepinfer::backend::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kUnit = 8;  // values of a 16-byte unit; eight units are a row of an atom

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

// Writes bf16(v) and leaves in v what that lost.
__device__ void StorePart(float (&v)[kUnit], uint8_t* out) {
  uint32_t words[kUnit / 2];
#pragma unroll
  for (int i = 0; i < kUnit / 2; ++i) {
    words[i] = ptx::PackBf16x2(v[2 * i], v[2 * i + 1]);
    v[2 * i] -= __uint_as_float(words[i] << 16);
    v[2 * i + 1] -= __uint_as_float(words[i] & 0xFFFF0000u);
  }
  *reinterpret_cast<uint4*>(out) = make_uint4(words[0], words[1], words[2], words[3]);
}

// One thread a unit: unit index = ((problem chunk) * row groups + group) * 64 + row * 8 + unit.
__global__ void PackInputsKernel(PackInputsParams p, int parts, int64_t row_groups, uint8_t* out) {
  ptx::GridTrigger();
  ptx::GridWait();
  const int64_t at = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int unit = static_cast<int>(at % kUnit), row_in_group = static_cast<int>(at / kUnit % kGroupRows);
  const int64_t group = at / (kUnit * kGroupRows) % row_groups, chunk = at / (kUnit * kGroupRows * row_groups);
  const int64_t chunks = NumChunks(p.cols);
  if (chunk >= p.problems * chunks) return;  // whole warps: an atom is two warps
  const int64_t row = group * kGroupRows + row_in_group, col = chunk % chunks * kChunkCols + unit * kUnit;
  int64_t source = row < p.rows ? row : -1;
  if (source >= 0 && p.row_map != nullptr) {
    const int32_t mapped = p.row_map[row];
    source = mapped < 0 || !p.keep_rows ? mapped : row;
  }
  float v[kUnit];
  const float* x = p.x + source * p.x_stride + chunk / chunks * p.cols + col;
#pragma unroll
  for (int i = 0; i < kUnit; ++i) v[i] = source >= 0 && col + i < p.cols ? x[i] : 0.0f;
  if (p.gated) {
    const float weight = source >= 0 && p.row_weights != nullptr ? p.row_weights[row] : 1.0f;
#pragma unroll
    for (int i = 0; i < kUnit; ++i) {
      const float gate = fminf(v[i], p.limit);
      const float up = source >= 0 && col + i < p.cols ? fminf(fmaxf(x[p.cols + i], -p.limit), p.limit) : 0.0f;
      v[i] = weight * gate / (1.0f + expf(-gate)) * up;
    }
  }
  if (p.activations == Activations::kFp8) RoundTripFp8(v);
  uint8_t* atom = out + (chunk * parts * row_groups + group) * kAtomBytes + row_in_group * 128 + (unit ^ row_in_group) * 16;
  for (int part = 0; part < parts; ++part) StorePart(v, atom + part * row_groups * kAtomBytes);
}

}  // namespace

PackedInputs RoomForInputs(Context& context, int64_t rows, int64_t chunks, Activations activations) {
  PackedInputs packed;
  packed.parts = NumParts(activations);
  packed.part_bytes = (rows + kGroupRows - 1) / kGroupRows * kAtomBytes;
  packed.data = context.Take<uint8_t>(chunks * packed.parts * packed.part_bytes);
  return packed;
}

PackedInputs PackInputs(Context& context, const PackInputsParams& p) {
  const int64_t groups = (p.rows + kGroupRows - 1) / kGroupRows, chunks = p.problems * NumChunks(p.cols);
  const PackedInputs packed = RoomForInputs(context, p.rows, chunks, p.activations);
  if (packed.data == nullptr) return packed;
  const int64_t units = chunks * groups * kGroupRows * kUnit;
  const auto blocks = static_cast<unsigned>((units + kThreads - 1) / kThreads);
  LaunchAfter(context, PackInputsKernel, blocks, kThreads, 0, p, packed.parts, groups, packed.data);
  return packed;
}

}  // namespace deepinfer::backend::cuda
