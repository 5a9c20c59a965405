// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/linear/gemm_instances_sm90.cuh"

namespace deepinfer::backend::cuda {

void LaunchGemmBf16(Context& context, const GemmParams& p, int num_items) {
  LaunchGemm<WeightFormat::kBf16>(context, p, num_items);
}

}  // namespace deepinfer::backend::cuda
