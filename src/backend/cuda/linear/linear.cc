// SPDX-License-Identifier: Apache-2.0
// Linear: the tensor cores for BF16, FP8 and FP4 matrices, plain fp32 for the rest.
#include "backend/cuda/launch.h"
#include "backend/cuda/linear/gemm_launch.h"
#include "backend/cuda/linear/inputs.h"
#include "backend/cuda/linear/linear.h"
#include "backend/cuda/linear/packed.h"
#include "backend/cuda/linear/plain.h"
#include "backend/cuda/rows/rows.h"
#include "core/check.h"

namespace deepinfer::backend::cuda {

int64_t InputBytes(const Matrix& w, int64_t groups, Activations activations, int64_t rows) {
  if (!IsPacked(w.format)) return 0;
  const InputForm form = FormFor(w, activations);
  // One part, and groups that begin with a chunk.
  if (!form.aligned && (form.activations != Activations::kBf16 || w.cols % kChunkCols != 0)) return 0;
  return PackedInputBytes(rows, groups * NumChunks(w.format, w.cols), form);
}

namespace {

// What runs of a linear of packed matrices; no inputs where memory is short.
struct Product {
  GemmShape shape;
  GemmParams gemm;
};

Product Describe(Context& context, const LinearParams& p) {
  const InputForm form = FormFor(p.w, p.activations);
  const int64_t num_chunks = NumChunks(p.w.format, p.w.cols);
  const PackedInputs inputs = p.inputs != nullptr
                                  ? InputsAt(p.inputs, p.rows, p.groups * num_chunks, form)
                                  : PackInputs(context, {.x = p.x, .x_stride = p.x_stride, .rows = p.rows, .cols = p.w.cols,
                                                         .problems = p.groups, .form = form});
  GemmParams gemm;
  gemm.matrix = static_cast<const uint8_t*>(p.w.data);
  gemm.num_chunks = static_cast<int32_t>(num_chunks);
  gemm.problem_rows = static_cast<int32_t>(p.w.rows / p.groups);
  gemm.inputs = inputs.data;
  gemm.part_bytes = inputs.part_bytes;
  gemm.parts = inputs.parts;
  gemm.row_scales = inputs.row_scales;
  gemm.problem_chunks = gemm.num_chunks;
  gemm.rows = static_cast<int32_t>(p.rows);
  gemm.y = p.y;
  gemm.y_stride = p.y_stride;
  return {{.tiles = NumTiles(p.w.rows), .num_chunks = gemm.num_chunks, .problems = p.groups, .rows = p.rows, .parts = inputs.parts,
           .format = p.w.format}, gemm};
}

void PackOutputs(Context& context, const SpanSums& sums, const LinearParams& p) {
  PackInputs(context, {.x = sums.data, .x_stride = sums.row_stride, .spans = sums.spans, .span_stride = sums.span_stride, .rows = p.rows,
                       .cols = p.w.rows, .form = LaidForm(p.y_inputs_as), .into = p.y_inputs});
}

void Check(const LinearParams& p) {
  DI_CHECK(p.groups >= 1 && p.w.rows % p.groups == 0 && (p.y_inputs != nullptr || p.y_stride >= p.w.rows));
  DI_CHECK(p.inputs != nullptr || p.x_stride >= p.groups * p.w.cols);
  DI_CHECK(p.inputs == nullptr || InputBytes(p.w, p.groups, p.activations, p.rows) > 0);
}

}  // namespace

void Linear(Context& context, const LinearParams& p) {
  Check(p);
  if (p.rows == 0 || p.w.rows == 0) return;
  if (p.y_inputs != nullptr) {
    LinearParams apart = p;
    apart.y = nullptr;
    const SpanSums sums = LinearApart(context, apart);
    if (sums.data != nullptr) PackOutputs(context, sums, p);
    return;
  }
  if (!IsPacked(p.w.format)) return PlainLinear(context, p);
  const Product product = Describe(context, p);
  if (product.gemm.inputs != nullptr) RunGemm(context, product.shape, product.gemm);
}

SpanSums LinearApart(Context& context, const LinearParams& p) {
  Check(p);
  if (IsPacked(p.w.format)) {
    const Product product = Describe(context, p);
    return product.gemm.inputs == nullptr ? SpanSums{} : RunGemmApart(context, product.shape, product.gemm);
  }
  LinearParams plain = p;
  if (plain.y == nullptr) {
    plain.y_stride = p.w.rows;
    plain.y = context.Take<float>(p.rows * plain.y_stride);
  }
  if (plain.y != nullptr) PlainLinear(context, plain);
  return {.data = plain.y, .row_stride = plain.y_stride};
}

void LinearNorm(Context& context, const LinearParams& linear, const RmsNormParams& norm) {
  Check(linear);
  DI_CHECK(norm.x == linear.y && norm.x_stride == linear.y_stride && norm.rows == linear.rows && norm.dim == linear.w.rows);
  if (linear.rows == 0) return;
  const SpanSums sums = LinearApart(context, linear);
  if (sums.data == nullptr) return;
  RmsNormParams joined = norm;
  joined.x = sums.data;
  joined.x_stride = sums.row_stride;
  RmsNormOfSpans(context, joined, sums.spans, sums.span_stride);
}

}  // namespace deepinfer::backend::cuda
