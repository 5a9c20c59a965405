// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/attention/attention_launch.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/linear/inputs.h"

namespace deepinfer::backend::cuda {

void Attention(Context& context, const AttentionParams& p) {
  if (p.rows == 0) return;
  if (SparseAttentionTakes(p)) return SparseAttention(context, p);
  if (p.inputs == nullptr) return PlainAttention(context, p);
  AttentionParams plain = p;
  const int64_t width = p.heads * p.dim;
  plain.out = context.Take<float>(p.rows * width);
  if (plain.out == nullptr) return;
  PlainAttention(context, plain);
  PackInputs(context, {.x = plain.out, .x_stride = width, .rows = p.rows, .cols = width, .form = LaidForm(Activations::kBf16),
                       .into = p.inputs});
}

}  // namespace deepinfer::backend::cuda
