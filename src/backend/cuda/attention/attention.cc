// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/attention/attention_launch.h"
#include "backend/cuda/launch.h"

namespace deepinfer::backend::cuda {

void Attention(Context& context, const AttentionParams& p) {
  if (p.rows == 0) return;
  if (SparseAttentionTakes(p)) {
    SparseAttention(context, p);
  } else {
    PlainAttention(context, p);
  }
}

}  // namespace deepinfer::backend::cuda
