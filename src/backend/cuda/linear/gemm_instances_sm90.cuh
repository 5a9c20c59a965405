// SPDX-License-Identifier: Apache-2.0
// The compiled instances of the matrix kernel for one weight format, and the switch between them.
#pragma once

#include <algorithm>

#include "backend/cuda/launch_after.h"
#include "backend/cuda/linear/gemm_launch.h"
#include "backend/cuda/linear/gemm_sm90.cuh"
#include "core/check.h"

namespace deepinfer::backend::cuda {

template <typename Traits>
void LaunchInstance(Context& context, const GemmParams& p, const GemmMemory& memory, int num_items) {
  DI_CHECK(memory.num_stages / Traits::kSplit >= 2 && p.tile_tokens % kGroupRows == 0);
  DI_CHECK(p.block_tiles == Traits::kTiles && p.parts == Traits::kParts && p.tile_tokens <= Traits::Columns::kMost);
  DI_CHECK(Traits::kTotals || p.span_items == p.spans);
  DI_CHECK(p.epilogue == Epilogue::kStore || (p.spans == 1 && p.parts == 1));
  context.Record(cudaFuncSetAttribute(GemmKernel<Traits>, cudaFuncAttributeMaxDynamicSharedMemorySize, memory.total_bytes),
                 "matrix kernel: shared memory");
  const auto blocks = static_cast<unsigned>(std::min(num_items, context.num_sms()));
  LaunchAfter(context, GemmKernel<Traits>, blocks, Traits::kThreads, static_cast<size_t>(memory.total_bytes), p, memory, num_items);
}

template <typename Traits>
void LaunchInstance(Context& context, const GemmParams& p, int num_items) {
  LaunchInstance<Traits>(context, p, PlanMemory(p.tile_tokens, Traits::kFormat, p.parts, Traits::kTotals, Traits::kTiles), num_items);
}

template <WeightFormat kFormat>
void LaunchGemm(Context& context, const GemmParams& p, int num_items) {
  const bool totals = p.span_items < p.spans, few = p.tile_tokens <= kTokensFew;
  if (p.parts == 1) {
    if (totals) return LaunchInstance<GemmKernelTraits<kFormat, 1, true, Widths<kTokensFew, kTokensWide>>>(context, p, num_items);
    if (few && p.block_tiles == kBlockTilesFew) {
      return LaunchInstance<GemmKernelTraits<kFormat, 1, false, Widths<8, 16, 32, kTokensFew>, kBlockTilesFew>>(context, p, num_items);
    }
    if (few) return LaunchInstance<GemmKernelTraits<kFormat, 1, false, Widths<8, 16, 32, 40, 48, kTokensFew>>>(context, p, num_items);
    return LaunchInstance<GemmKernelTraits<kFormat, 1, false, Widths<kTokensWide>>>(context, p, num_items);
  }
  if (!totals) return LaunchInstance<GemmKernelTraits<kFormat, 3, false, Widths<8, 16, kTokensFew>>>(context, p, num_items);
  if (p.tile_tokens <= kTokensFewest) {
    return LaunchInstance<GemmKernelTraits<kFormat, 3, true, Widths<8, 16, kTokensFewest>>>(context, p, num_items);
  }
  LaunchInstance<GemmKernelTraits<kFormat, 3, true, Widths<kTokensFew, kTokensWide>>>(context, p, num_items);
}

template <WeightFormat kFormat>
void LaunchAligned(Context& context, const GemmParams& p, int num_items) {
  DI_CHECK(p.spans == 1 && p.packed_y == nullptr && p.row_scales != nullptr);
  DI_CHECK(p.y_bf16 == nullptr || (p.problem_rows % 2 == 0 && p.y_stride % 2 == 0));
  const GemmMemory memory = PlanAlignedMemory(p.tile_tokens, kFormat, p.block_tiles);
  const auto launch = [&](auto traits) { LaunchInstance<decltype(traits)>(context, p, memory, num_items); };
  using Few = Widths<8, 16, kTokensFewest, kTokensFew>;
  if (p.tile_tokens > kTokensFew) return launch(AlignedTraits<kFormat, 4, 2, 1, Widths<kTokensWide>>{});
  if (p.block_tiles == 2) return launch(AlignedTraits<kFormat, 2, 1, AlignedSplit(2), Few>{});
  if (p.block_tiles == 1) return launch(AlignedTraits<kFormat, 1, 1, AlignedSplit(1), Few>{});
  if (p.tile_tokens > kTokensFewest) return launch(AlignedTraits<kFormat, 4, 1, 1, Widths<40, kTokensFew>>{});
  launch(AlignedTraits<kFormat, 4, 1, 1, Widths<8, 16, kTokensFewest>>{});
}

}  // namespace deepinfer::backend::cuda
