// SPDX-License-Identifier: Apache-2.0
// The matrix kernel for Hopper; contract and parameters in gemm.h, layouts in packed.h, cycle budget in
// docs/kernels/cuda.md.
//
// A persistent block has four producer warps and four consumer warpgroups. The producers bring, stage by stage, the next one or
// two chunks of packed weights of every warpgroup and the matching chunks of activations into shared memory with bulk copies, and
// run ahead into the next work item. A warpgroup decodes its chunk into registers and multiplies: A from registers, B from
// shared memory. The warpgroups hold neighbouring tiles (for kSwiGlu, pairs of gate and up) and share the activations. A block
// takes all spans of its outputs one after the other, and adds them up in registers; or each span is an item, with a y of its own.
// Aligned formats have loops of their own (gemm_aligned_sm90.cuh), in which a warpgroup has two tiles or several share one.
#pragma once

#include <cuda_runtime.h>

#include "backend/cuda/linear/gemm_aligned_sm90.cuh"
#include "backend/cuda/linear/gemm_multiply_sm90.cuh"
#include "backend/cuda/linear/gemm_produce_sm90.cuh"
#include "backend/cuda/linear/gemm_store_sm90.cuh"
#include "backend/cuda/ptx/grid.cuh"

namespace deepinfer::backend::cuda {

// What a consumer warpgroup has in hand.
template <typename Traits>
struct Consumer {
  const GemmParams& p;
  const GemmShared& shared;
  int warpgroup;
  StagePlaces places;
  Ring ring = {};

  template <int kColumns>
  __device__ void RunSpan(int span, float (&sums)[kColumns / 2]) {
    const int chunks = SpanBegin(p, span + 1) - SpanBegin(p, span);
    if constexpr (kColumns <= kWarpColumnsMax) {
      FewLoop<Traits, kColumns>{shared, places, chunks, ring, sums}.Run();
    } else {
      SpanLoop<Traits, kColumns>{shared, places, chunks, ring, sums}.Run();
    }
  }

  template <int kColumns>
  __device__ void RunItem(int index, int first_span) {
    float sums[kColumns / 2];
    if constexpr (Traits::kTotals) {
      float span_sums[kColumns / 2];
#pragma unroll
      for (float& sum : sums) sum = 0.0f;
      for (int span = first_span; span < SpanEnd(p, first_span); ++span) {
        RunSpan<kColumns>(span, span_sums);
#pragma unroll
        for (int r = 0; r < kColumns / 2; ++r) sums[r] += span_sums[r];
      }
    } else {
      RunSpan<kColumns>(first_span, sums);
    }
    // Found anew: an item takes registers that the main loop needs.
    const GemmItem item = GemmItem::Find(p, Anew(index));
    if (p.epilogue != Epilogue::kSwiGlu) {
      StoreRows(p, item, warpgroup, sums);
    } else if constexpr (Traits::kParts == 1 && !Traits::kTotals) {
      if (p.packed_y != nullptr) {
        StorePackedSwiGlu(p, item, warpgroup, sums);
      } else {
        StoreSwiGlu(p, item, warpgroup, sums);
      }
    }
  }

  // With as few columns as the tokens need, of those given.
  template <int kColumns, int... kMore>
  __device__ void RunColumns(Widths<kColumns, kMore...>, int index, int span, int rows) {
    if constexpr (sizeof...(kMore) == 0) {
      RunItem<kColumns>(index, span);
    } else if (rows <= kColumns) {
      RunItem<kColumns>(index, span);
    } else {
      RunColumns(Widths<kMore...>{}, index, span, rows);
    }
  }

  __device__ void Run(int num_items) {
    for (int index = static_cast<int>(blockIdx.x); index < num_items; index += static_cast<int>(gridDim.x)) {
      const GemmItem item = GemmItem::Find(p, index);
      const int rows = __shfl_sync(kAllLanes, item.rows, 0), span = __shfl_sync(kAllLanes, item.span, 0);
      if (rows > 0) RunColumns(typename Traits::Columns{}, index, span, rows);
    }
  }
};

template <typename Traits>
__global__ void __launch_bounds__(Traits::kThreads, 1)
    GemmKernel(const __grid_constant__ GemmParams p, const GemmMemory memory, int num_items) {
  constexpr int kConsumerWarps = Traits::kWarpgroups * (kWarpgroup / kWarp);
  extern __shared__ uint8_t raw[];
  const uint32_t base = (ptx::SharedAddress(raw) + kAtomBytes - 1) / kAtomBytes * kAtomBytes;
  GemmShared shared = {__shfl_sync(kAllLanes, base, 0), memory};
  if (threadIdx.x == 0) {
    for (int i = 0; i < memory.num_stages; ++i) {
      ptx::BarrierInit(shared.Full(i), kProducerWarps / Traits::kSplit);
      ptx::BarrierInit(shared.Empty(i), kConsumerWarps / Traits::kSplit * kReleasingLanes);
    }
    ptx::FenceBarrierInit();
  }
  __syncthreads();
  if (threadIdx.x < kConsumerWarps * kWarp) {
    ptx::TakeRegisters<Traits::kConsumerRegisters>();
    ptx::GridWait();
    ptx::GridTrigger();
    const int warpgroup = UniformIndex(kWarpgroup);
    if constexpr (IsAligned(Traits::kFormat)) {
      shared.TakePart(warpgroup % Traits::kSplit, Traits::kSplit);
      const int tile = AlignedConsumer<Traits>::FirstTile(warpgroup);
      AlignedConsumer<Traits>{p, shared, warpgroup, FindPlaces<Traits>(p, shared, tile)}.Run(num_items);
    } else {
      Consumer<Traits>{p, shared, warpgroup, StagePlaces::Find<Traits>(p, shared, warpgroup)}.Run(num_items);
    }
  } else {
    ptx::ReleaseRegisters<Traits::kProducerRegisters>();
    const int warp = UniformIndex(kWarp) - kConsumerWarps;
    shared.TakePart(warp % Traits::kSplit, Traits::kSplit);
    if (threadIdx.x % kWarp == 0) Producer<Traits>{p, shared, warp / Traits::kSplit, warp % Traits::kSplit}.Run(num_items);
  }
}

}  // namespace deepinfer::backend::cuda
