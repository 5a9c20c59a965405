// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/linear/gemm_instances_sm90.cuh"

namespace deepinfer::backend::cuda {

void LaunchGemmFp8(Context& context, const GemmParams& p, int num_items) {
  LaunchGemm<WeightFormat::kFp8Tile32>(context, p, num_items);
}

}  // namespace deepinfer::backend::cuda
