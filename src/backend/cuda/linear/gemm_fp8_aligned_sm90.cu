// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/linear/gemm_instances_sm90.cuh"

namespace deepinfer::backend::cuda {

void LaunchGemmFp8Aligned(Context& context, const GemmParams& p, int num_items) {
  LaunchAligned<WeightFormat::kFp8Aligned>(context, p, num_items);
}

}  // namespace deepinfer::backend::cuda
