// SPDX-License-Identifier: Apache-2.0
// The matrix kernel for Hopper; contract and parameters in gemm.h, layouts in packed.h, cycle budget in
// docs/kernels/cuda.md.
//
// A persistent block has a producer and 2 or 4 consumer warpgroups. The producer brings, stage by stage, the next
// chunk of packed weights of every warpgroup and the matching chunk of activations into shared memory with bulk copies,
// and runs ahead into the next work item. A warpgroup decodes its chunk into registers and multiplies: A from registers,
// B from shared memory. Wide: the warpgroups hold neighbouring tiles (for kSwiGlu, pairs of gate and up) and share the
// activations. Deep: they hold the four spans of one tile.
#pragma once

#include <cuda_runtime.h>

#include "backend/cuda/device/reduce.cuh"
#include "backend/cuda/linear/decode_sm90.cuh"
#include "backend/cuda/linear/gemm.h"
#include "backend/cuda/ptx/pipeline.cuh"
#include "backend/cuda/ptx/wgmma_sm90.cuh"

namespace deepinfer::backend::cuda {

template <WeightFormat kFormat_, int kTokens_, int kWarpgroups_, bool kDeep_, bool kSums_>
struct GemmKernelTraits {
  static constexpr WeightFormat kFormat = kFormat_;
  static constexpr int kTokens = kTokens_;          // columns of a wgmma
  static constexpr int kWarpgroups = kWarpgroups_;  // consumers
  static constexpr bool kDeep = kDeep_;
  static constexpr bool kSums = kSums_;
  static constexpr int kThreads = (kWarpgroups + 1) * kWarpgroup;  // the producer is one thread of the last warpgroup
  // The producer leaves its registers to the consumers. A block starts with what 64K registers give every thread, in
  // steps of 8; asking for more than that in all would wait for ever.
  static constexpr int kStartRegisters = 65536 / kThreads / 8 * 8;
  static constexpr int kConsumerRegisters = kWarpgroups == 2 ? 240 : 112;
  static constexpr int kProducerRegisters = kWarpgroups == 2 ? 24 : 32;
  static_assert(kWarpgroups * kConsumerRegisters + kProducerRegisters <= (kWarpgroups + 1) * kStartRegisters);
  static constexpr int kRegs = kTokens / 2;         // accumulators of a thread
  static constexpr int kInputs = kDeep ? kWarpgroups : 1;  // activation chunks of a stage
  static constexpr int kChunk = ChunkBytes(kFormat);
  static constexpr GemmConfig kConfig = {kTokens, kWarpgroups, kDeep, kSums};
};

// The dynamic shared memory, from a 1024-byte boundary on.
struct GemmShared {
  uint64_t* full;      // [stages]
  uint64_t* empty;     // [stages]
  float* exchange;
  uint8_t* stages;
  int num_stages;
  int stage_bytes;

  __device__ uint8_t* Inputs(int stage) const { return stages + stage * stage_bytes; }
};

// A place in the ring of stages.
struct Ring {
  int stage = 0;
  uint32_t phase = 0;

  __device__ void Next(int num_stages) {
    if (++stage == num_stages) {
      stage = 0;
      phase ^= 1;
    }
  }
};

// One work item: the token tile and the outputs that the block computes.
struct GemmItem {
  int problem;
  int first_row;
  int rows;       // 0: nothing to do
  int row_block;

  template <typename Traits>
  __device__ static GemmItem Find(const GemmParams& p, int index) {
    GemmItem item;
    const int tile = index / p.row_blocks;
    item.row_block = index % p.row_blocks;
    if (p.token_tiles != nullptr) {
      const TokenTile t = p.token_tiles[tile];
      item.problem = t.problem;
      item.first_row = t.first_row;
      item.rows = t.rows;
    } else {
      item.problem = tile / p.problem_token_tiles;
      item.first_row = tile % p.problem_token_tiles * Traits::kTokens;
      item.rows = min(Traits::kTokens, p.rows - item.first_row);
    }
    return item;
  }

  // First output of the problem in its matrix: problems with a matrix each begin at 0.
  __device__ int FirstOutput(const GemmParams& p) const { return p.matrices == nullptr ? problem * p.problem_rows : 0; }

  // The tile of a warpgroup, or -1 where it has none. For kSwiGlu the even warpgroups have gate, the odd ones up.
  template <typename Traits>
  __device__ int Tile(const GemmParams& p, int warpgroup) const {
    int tile = row_block;
    if (!Traits::kDeep) {
      tile = p.epilogue == Epilogue::kSwiGlu ? row_block * (Traits::kWarpgroups / 2) + warpgroup / 2
                                             : row_block * Traits::kWarpgroups + warpgroup;
    }
    const int first = FirstOutput(p), absolute = first / kTileRows + tile;
    return absolute * kTileRows < first + p.problem_rows ? absolute : -1;
  }

  template <typename Traits>
  __device__ const uint8_t* TileData(const GemmParams& p, int warpgroup, int tile) const {
    const uint8_t* base = p.matrix;
    if (p.matrices != nullptr) {
      base = p.matrices[p.epilogue == Epilogue::kSwiGlu ? 2 * problem + warpgroup % 2 : problem];
    }
    return base + int64_t{tile} * p.num_chunks * Traits::kChunk;
  }
};

__device__ inline int SpanBegin(const GemmParams& p, int span) { return span * p.num_chunks / p.spans; }

// Chunks that a warpgroup multiplies.
template <typename Traits>
__device__ inline int ChunkBegin(const GemmParams& p, int warpgroup) {
  return Traits::kDeep ? SpanBegin(p, warpgroup) : 0;
}
template <typename Traits>
__device__ inline int ChunkEnd(const GemmParams& p, int warpgroup) {
  return Traits::kDeep ? SpanBegin(p, warpgroup + 1) : p.num_chunks;
}
// Stages of a work item: the spans of a deep item can differ by one chunk.
template <typename Traits>
__device__ inline int StagesOfItem(const GemmParams& p) {
  return Traits::kDeep ? (p.num_chunks + Traits::kWarpgroups - 1) / Traits::kWarpgroups : p.num_chunks;
}

// The producer: one thread.
template <typename Traits>
__device__ void Produce(const GemmParams& p, const GemmShared& shared, int num_items) {
  Ring ring;
  for (int index = static_cast<int>(blockIdx.x); index < num_items; index += static_cast<int>(gridDim.x)) {
    const GemmItem item = GemmItem::Find<Traits>(p, index);
    if (item.rows <= 0) continue;
    const uint32_t input_bytes = static_cast<uint32_t>((item.rows + kGroupRows - 1) / kGroupRows * kAtomBytes);
    const uint8_t* data[Traits::kWarpgroups];
#pragma unroll
    for (int w = 0; w < Traits::kWarpgroups; ++w) {
      const int tile = item.Tile<Traits>(p, w);
      data[w] = tile < 0 ? nullptr : item.TileData<Traits>(p, w, tile);
    }
    const uint8_t* inputs = p.inputs + int64_t{item.first_row / kGroupRows} * kAtomBytes +
                            int64_t{item.problem} * p.problem_chunks * p.parts * p.part_bytes;
    for (int i = 0; i < StagesOfItem<Traits>(p); ++i) {
      ptx::BarrierWait(&shared.empty[ring.stage], ring.phase ^ 1);
      uint8_t* stage = shared.Inputs(ring.stage);
      uint8_t* weights = stage + Traits::kInputs * p.parts * Traits::kTokens * 128;
      uint64_t* full = &shared.full[ring.stage];
      uint32_t bytes = 0;
#pragma unroll
      for (int w = 0; w < Traits::kWarpgroups; ++w) {
        const int chunk = ChunkBegin<Traits>(p, w) + i;
        if (chunk >= ChunkEnd<Traits>(p, w)) continue;
        bytes += data[w] != nullptr ? Traits::kChunk : 0;
        bytes += w < Traits::kInputs ? p.parts * input_bytes : 0;
      }
      ptx::BarrierArriveExpect(full, bytes);
#pragma unroll
      for (int w = 0; w < Traits::kWarpgroups; ++w) {
        const int chunk = ChunkBegin<Traits>(p, w) + i;
        if (chunk >= ChunkEnd<Traits>(p, w)) continue;
        if (data[w] != nullptr) {
          ptx::BulkCopy(weights + w * Traits::kChunk, data[w] + int64_t{chunk} * Traits::kChunk, Traits::kChunk, full);
        }
        if (w >= Traits::kInputs) continue;
        for (int part = 0; part < p.parts; ++part) {
          ptx::BulkCopy(stage + (w * p.parts + part) * Traits::kTokens * 128,
                        inputs + (int64_t{chunk} * p.parts + part) * p.part_bytes, input_bytes, full);
        }
      }
      ring.Next(shared.num_stages);
    }
  }
}

// Adds the product of one chunk to the accumulators; all 128 threads of the warpgroup.
template <typename Traits, int kParts>
__device__ void MultiplyChunk(const uint8_t* stage, int warpgroup, float (&sums)[Traits::kRegs]) {
  constexpr int kPartBytes = Traits::kTokens * 128;
  const uint8_t* weights = stage + Traits::kInputs * kParts * kPartBytes + warpgroup * Traits::kChunk;
  const uint32_t inputs = ptx::SharedAddress(stage + (Traits::kDeep ? warpgroup : 0) * kParts * kPartBytes);
  Fragments a;
  ChunkDecoder<Traits::kFormat>::Load(weights, static_cast<int>(threadIdx.x) % kWarpgroup, a);
  ptx::WgmmaFenceRegisters(sums);
  ptx::WgmmaFence();
#pragma unroll
  for (int step = 0; step < kChunkCols / kStepCols; ++step) {
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      ptx::Wgmma(sums, a[step], ptx::SwizzledOperand(inputs + part * kPartBytes + step * 32));
    }
  }
  ptx::WgmmaCommit();
  ptx::WgmmaWait();
  ptx::WgmmaFenceRegisters(sums);
}

// Where accumulator i of this thread lies: output within the tile, token within the token tile.
__device__ inline int OutputOf(int i) {
  const int t = static_cast<int>(threadIdx.x) % kWarpgroup;
  return t / kWarp * 16 + t % kWarp / 4 + i / 2 % 2 * 8;
}
__device__ inline int TokenOf(int i) { return i / 4 * 8 + static_cast<int>(threadIdx.x) % 4 * 2 + i % 2; }

template <typename Traits>
__device__ void StoreOne(const GemmParams& p, const GemmItem& item, int tile, int i, float value) {
  const int output = tile * kTileRows + OutputOf(i), token = TokenOf(i), first = item.FirstOutput(p);
  if (token < item.rows && output >= first && output < first + p.problem_rows) {
    p.y[int64_t{item.first_row + token} * p.y_stride + output] = value;
  }
}

// Deep: adds the spans of the four warpgroups in order; the first one stores.
template <typename Traits>
__device__ void JoinSpans(const GemmParams& p, const GemmShared& shared, int warpgroup, float (&sums)[Traits::kRegs]) {
  const int t = static_cast<int>(threadIdx.x) % kWarpgroup;
  if (warpgroup > 0) {
#pragma unroll
    for (int i = 0; i < Traits::kRegs; ++i) {
      shared.exchange[((warpgroup - 1) * Traits::kRegs + i) * kWarpgroup + t] = sums[i];
    }
  }
  ptx::SyncThreads(1, Traits::kWarpgroups * kWarpgroup);
  if (warpgroup == 0) {
#pragma unroll
    for (int w = 1; w < Traits::kWarpgroups; ++w) {
#pragma unroll
      for (int i = 0; i < Traits::kRegs; ++i) sums[i] += shared.exchange[((w - 1) * Traits::kRegs + i) * kWarpgroup + t];
    }
  }
  ptx::SyncThreads(1, Traits::kWarpgroups * kWarpgroup);
}

// kSwiGlu: the two warpgroups of a pair each get gate and up of one half of the tokens.
template <typename Traits, bool kUp>
__device__ void StoreSwiGlu(const GemmParams& p, const GemmShared& shared, const GemmItem& item, int tile, int pair,
                            const float (&sums)[Traits::kRegs]) {
  constexpr int kHalf = Traits::kRegs / 2, kOwn = kUp ? kHalf : 0, kOther = kUp ? 0 : kHalf;
  const int t = static_cast<int>(threadIdx.x) % kWarpgroup;
  float* mine = shared.exchange + (2 * pair + (kUp ? 1 : 0)) * kHalf * kWarpgroup;
  const float* theirs = shared.exchange + (2 * pair + (kUp ? 0 : 1)) * kHalf * kWarpgroup;
#pragma unroll
  for (int i = 0; i < kHalf; ++i) mine[i * kWarpgroup + t] = sums[kOther + i];
  ptx::SyncThreads(1 + pair, 2 * kWarpgroup);
#pragma unroll
  for (int i = 0; i < kHalf; ++i) {
    const float other = theirs[i * kWarpgroup + t], own = sums[kOwn + i];
    const float gate = fminf(kUp ? other : own, p.limit);
    const float up = fminf(fmaxf(kUp ? own : other, -p.limit), p.limit);
    const int token = TokenOf(kOwn + i);
    const float weight =
        p.token_weights == nullptr || token >= item.rows ? 1.0f : p.token_weights[item.first_row + token];
    if (tile >= 0) StoreOne<Traits>(p, item, tile, kOwn + i, weight * gate / (1.0f + expf(-gate)) * up);
  }
  ptx::SyncThreads(1 + pair, 2 * kWarpgroup);
}

// A consumer warpgroup.
template <typename Traits, int kParts>
__device__ void Consume(const GemmParams& p, const GemmShared& shared, int num_items) {
  const int warpgroup = static_cast<int>(threadIdx.x) / kWarpgroup;
  const bool elected = threadIdx.x % kWarp == 0;
  Ring ring;
  for (int index = static_cast<int>(blockIdx.x); index < num_items; index += static_cast<int>(gridDim.x)) {
    const GemmItem item = GemmItem::Find<Traits>(p, index);
    if (item.rows <= 0) continue;
    const int tile = item.Tile<Traits>(p, warpgroup);
    const int begin = ChunkBegin<Traits>(p, warpgroup), end = ChunkEnd<Traits>(p, warpgroup);
    float sums[Traits::kRegs] = {};
    float total[Traits::kSums ? Traits::kRegs : 1] = {};
    int span = 0, span_end = Traits::kSums ? SpanBegin(p, 1) : end;
    for (int i = 0; i < StagesOfItem<Traits>(p); ++i) {
      ptx::BarrierWait(&shared.full[ring.stage], ring.phase);
      if (begin + i < end) MultiplyChunk<Traits, kParts>(shared.Inputs(ring.stage), warpgroup, sums);
      if (elected) ptx::BarrierArrive(&shared.empty[ring.stage]);
      ring.Next(shared.num_stages);
      if constexpr (Traits::kSums) {
        if (i + 1 == span_end) {
#pragma unroll
          for (int r = 0; r < Traits::kRegs; ++r) {
            total[r] += sums[r];
            sums[r] = 0.0f;
          }
          span_end = SpanBegin(p, ++span + 1);
        }
      }
    }
    if constexpr (Traits::kSums) {
#pragma unroll
      for (int r = 0; r < Traits::kRegs; ++r) sums[r] = total[r];
    }
    if constexpr (Traits::kDeep) {
      JoinSpans<Traits>(p, shared, warpgroup, sums);
      if (warpgroup > 0) continue;
    } else if (p.epilogue == Epilogue::kSwiGlu) {
      if (warpgroup % 2 == 0) {
        StoreSwiGlu<Traits, false>(p, shared, item, tile, warpgroup / 2, sums);
      } else {
        StoreSwiGlu<Traits, true>(p, shared, item, tile, warpgroup / 2, sums);
      }
      continue;
    }
    if (tile < 0) continue;
#pragma unroll
    for (int r = 0; r < Traits::kRegs; ++r) StoreOne<Traits>(p, item, tile, r, sums[r]);
  }
}

template <typename Traits>
__global__ void __launch_bounds__(Traits::kThreads, 1)
    GemmKernel(const __grid_constant__ GemmParams p, int num_items, int num_stages, int stage_bytes) {
  extern __shared__ uint8_t raw[];
  // Barriers first, then the exchange, then the stages from a boundary of the swizzle on.
  auto* aligned = reinterpret_cast<uint8_t*>((reinterpret_cast<uintptr_t>(raw) + kAtomBytes - 1) / kAtomBytes * kAtomBytes);
  GemmShared shared;
  shared.full = reinterpret_cast<uint64_t*>(aligned);
  shared.empty = shared.full + kStagesMax;
  shared.stages = aligned + kAtomBytes;
  shared.num_stages = num_stages;
  shared.stage_bytes = stage_bytes;
  shared.exchange = reinterpret_cast<float*>(shared.stages + num_stages * stage_bytes);
  if (threadIdx.x == 0) {
    for (int i = 0; i < num_stages; ++i) {
      ptx::BarrierInit(&shared.full[i], 1);
      ptx::BarrierInit(&shared.empty[i], Traits::kWarpgroups * kWarpgroup / kWarp);
    }
    ptx::FenceBarrierInit();
  }
  __syncthreads();
  if (threadIdx.x < Traits::kWarpgroups * kWarpgroup) {
    ptx::TakeRegisters<Traits::kConsumerRegisters>();
    if (p.parts == 1) {
      Consume<Traits, 1>(p, shared, num_items);
    } else {
      Consume<Traits, 3>(p, shared, num_items);
    }
  } else {
    ptx::ReleaseRegisters<Traits::kProducerRegisters>();
    if (threadIdx.x == Traits::kWarpgroups * kWarpgroup) Produce<Traits>(p, shared, num_items);
  }
}

}  // namespace deepinfer::backend::cuda
