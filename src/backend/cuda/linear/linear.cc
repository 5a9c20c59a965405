// SPDX-License-Identifier: Apache-2.0
// Linear: the tensor cores for BF16, FP8 and FP4 matrices, plain fp32 for the rest.
#include "backend/cuda/launch.h"
#include "backend/cuda/linear/gemm_launch.h"
#include "backend/cuda/linear/inputs.h"
#include "backend/cuda/linear/packed.h"
#include "backend/cuda/linear/plain.h"
#include "core/check.h"

namespace deepinfer::backend::cuda {

int64_t InputBytes(const Matrix& w, int64_t groups, Activations activations, int64_t rows) {
  // One part, and groups that begin with a chunk.
  if (!IsPacked(w.format) || w.cols % kChunkCols != 0 || EffectiveActivations(activations, w) != Activations::kBf16) return 0;
  return groups * NumChunks(w.cols) * PartBytes(rows);
}

void Linear(Context& context, const LinearParams& p) {
  DI_CHECK(p.groups >= 1 && p.w.rows % p.groups == 0 && p.y_stride >= p.w.rows);
  DI_CHECK(p.inputs != nullptr || p.x_stride >= p.groups * p.w.cols);
  if (p.rows == 0 || p.w.rows == 0) return;
  DI_CHECK(p.inputs == nullptr || InputBytes(p.w, p.groups, p.activations, p.rows) > 0);
  if (!IsPacked(p.w.format)) return PlainLinear(context, p);
  const Activations activations = EffectiveActivations(p.activations, p.w);
  const PackedInputs inputs = p.inputs != nullptr
                                  ? InputsAt(p.inputs, p.rows, activations)
                                  : PackInputs(context, {.x = p.x, .x_stride = p.x_stride, .rows = p.rows, .cols = p.w.cols,
                                                         .problems = p.groups, .activations = activations});
  if (inputs.data == nullptr) return;
  GemmParams gemm;
  gemm.matrix = static_cast<const uint8_t*>(p.w.data);
  gemm.num_chunks = static_cast<int32_t>(NumChunks(p.w.cols));
  gemm.problem_rows = static_cast<int32_t>(p.w.rows / p.groups);
  gemm.inputs = inputs.data;
  gemm.part_bytes = inputs.part_bytes;
  gemm.parts = inputs.parts;
  gemm.problem_chunks = gemm.num_chunks;
  gemm.rows = static_cast<int32_t>(p.rows);
  gemm.y = p.y;
  gemm.y_stride = p.y_stride;
  RunGemm(context, {.tiles = NumTiles(p.w.rows), .num_chunks = gemm.num_chunks, .problems = p.groups, .rows = p.rows,
                    .parts = inputs.parts, .format = p.w.format}, gemm);
}

}  // namespace deepinfer::backend::cuda
