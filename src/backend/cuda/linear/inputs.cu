// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/linear/inputs.h"

#include "backend/cuda/launch_after.h"
#include "backend/cuda/linear/aligned_inputs.h"
#include "backend/cuda/linear/input_units.cuh"
#include "backend/cuda/linear/packed.h"
#include "backend/cuda/ptx/grid.cuh"
#include "numeric/quantize.h"

namespace deepinfer::backend::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kBlockChunks = 4;

// FP8 round trip of the block of 32 channels that four neighbouring threads hold.
__device__ void RoundTripFp8(float (&v)[kUnit]) {
  const float scale = numeric::E8m0ToFloat(BlockScale(v));
#pragma unroll
  for (int i = 0; i < kUnit; ++i) v[i] = numeric::E4m3ToFloat(numeric::FloatToE4m3(v[i] / scale)) * scale;
}

// A block packs the atoms of a row group in four chunks: grid (row groups, chunks of all problems / 4). One thread a unit.
__global__ void __launch_bounds__(kThreads) PackInputsKernel(PackInputsParams p, int parts, int chunks, bool vectors, uint8_t* out) {
  ptx::GridBegin();
  const int t = static_cast<int>(threadIdx.x), unit = t % kUnit, row_in_group = t / kUnit % kGroupRows;
  const int problem_chunk = static_cast<int>(blockIdx.y) * kBlockChunks + t / (kUnit * kGroupRows);
  const int problem = p.problems == 1 ? 0 : problem_chunk / chunks, chunk = problem_chunk - problem * chunks;
  if (problem >= p.problems || chunk >= chunks) return;  // whole warps: an atom is two warps
  const int64_t row = int64_t{blockIdx.x} * kGroupRows + row_in_group;
  const int64_t source = SourceRow(p, row);
  float v[kUnit];
  const int64_t col = int64_t{chunk} * kChunkCols + unit * kUnit, valid = source >= 0 ? p.cols - col : 0;
  LoadUnit(p, row, source * p.x_stride + problem * p.cols + col, valid, vectors, v);
  if (p.form.activations == Activations::kFp8) RoundTripFp8(v);
  const int64_t row_groups = gridDim.x;
  uint8_t* atom = out + (problem_chunk * parts * row_groups + blockIdx.x) * kAtomBytes + row_in_group * 128 + (unit ^ row_in_group) * 16;
  for (int part = 0; part < parts; ++part) *reinterpret_cast<uint4*>(atom + part * row_groups * kAtomBytes) = TakePart(v);
}

}  // namespace

PackedInputs InputsAt(const void* data, int64_t rows, int64_t chunks, const InputForm& form) {
  auto* bytes = static_cast<uint8_t*>(const_cast<void*>(data));
  const int parts = form.aligned ? 1 : NumParts(form.activations);
  PackedInputs inputs{.data = bytes, .part_bytes = PartBytes(rows), .parts = parts};
  if (form.aligned && bytes != nullptr) inputs.row_scales = reinterpret_cast<float*>(bytes + chunks * inputs.part_bytes);
  return inputs;
}

int64_t PackedInputBytes(int64_t rows, int64_t chunks, const InputForm& form) {
  if (form.aligned) return chunks * PartBytes(rows) + PartBytes(rows) / kAtomBytes * kGroupRows * int64_t{sizeof(float)};
  return chunks * NumParts(form.activations) * PartBytes(rows);
}

PackedInputs RoomForInputs(Context& context, int64_t rows, int64_t chunks, const InputForm& form) {
  return InputsAt(context.Take<uint8_t>(PackedInputBytes(rows, chunks, form)), rows, chunks, form);
}

PackedInputs PackInputs(Context& context, const PackInputsParams& p) {
  const int64_t groups = (p.rows + kGroupRows - 1) / kGroupRows, chunks = p.problems * NumInputChunks(p.cols, p.form);
  const PackedInputs packed =
      p.into != nullptr ? InputsAt(p.into, p.rows, chunks, p.form) : RoomForInputs(context, p.rows, chunks, p.form);
  if (packed.data == nullptr) return packed;
  if (p.form.aligned) {
    PackAlignedInputs(context, p, packed);
    return packed;
  }
  const dim3 grid(static_cast<unsigned>(groups), static_cast<unsigned>((chunks + kBlockChunks - 1) / kBlockChunks));
  LaunchAfter(context, PackInputsKernel, grid, kThreads, 0, p, packed.parts, static_cast<int>(NumInputChunks(p.cols, p.form)),
              LoadsVectors(p), packed.data);
  return packed;
}

}  // namespace deepinfer::backend::cuda
