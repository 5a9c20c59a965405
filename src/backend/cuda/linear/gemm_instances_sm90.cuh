// SPDX-License-Identifier: Apache-2.0
// The compiled instances of the matrix kernel for one weight format, and the switch between them.
#pragma once

#include <algorithm>

#include "backend/cuda/linear/gemm_launch.h"
#include "backend/cuda/linear/gemm_sm90.cuh"
#include "core/check.h"

namespace deepinfer::backend::cuda {

template <typename Traits>
void LaunchInstance(Context& context, const GemmParams& p, int num_items) {
  const GemmMemory memory = PlanMemory(Traits::kConfig, Traits::kFormat, p.parts);
  DI_CHECK(memory.num_stages >= 2);
  context.Record(cudaFuncSetAttribute(GemmKernel<Traits>, cudaFuncAttributeMaxDynamicSharedMemorySize, memory.total_bytes),
                 "matrix kernel: shared memory");
  const auto blocks = static_cast<unsigned>(std::min(num_items, context.num_sms()));
  GemmKernel<Traits><<<blocks, Traits::kThreads, static_cast<size_t>(memory.total_bytes), context.stream()>>>(
      p, num_items, memory.num_stages, memory.stage_bytes);
}

template <WeightFormat kFormat, int kTokens>
void LaunchDecode(Context& context, const GemmParams& p, const GemmConfig& config, int num_items) {
  if (config.deep) {
    LaunchInstance<GemmKernelTraits<kFormat, kTokens, 4, true, false>>(context, p, num_items);
  } else {
    LaunchInstance<GemmKernelTraits<kFormat, kTokens, 4, false, true>>(context, p, num_items);
  }
}

template <WeightFormat kFormat>
void LaunchGemm(Context& context, const GemmParams& p, const GemmConfig& config, int num_items) {
  switch (config.tokens) {
    case 8:
      return LaunchDecode<kFormat, 8>(context, p, config, num_items);
    case 32:
      return LaunchDecode<kFormat, 32>(context, p, config, num_items);
    case 64:
      return LaunchDecode<kFormat, 64>(context, p, config, num_items);
    case 128:
      return LaunchInstance<GemmKernelTraits<kFormat, 128, 2, false, true>>(context, p, num_items);
    case 256:
      return LaunchInstance<GemmKernelTraits<kFormat, 256, 2, false, false>>(context, p, num_items);
    default:
      DI_CHECK(false);
  }
}

}  // namespace deepinfer::backend::cuda
