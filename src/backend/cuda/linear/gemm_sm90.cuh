// SPDX-License-Identifier: Apache-2.0
// The matrix kernel for Hopper; contract and parameters in gemm.h, layouts in packed.h, cycle budget in
// docs/kernels/cuda.md.
//
// A persistent block has a producer and 2 or 4 consumer warpgroups. The producers bring, stage by stage, the next chunk
// of packed weights of every warpgroup and the matching chunk of activations into shared memory with bulk copies, and run
// ahead into the next work item. A warpgroup decodes its chunk into registers and multiplies: A from registers, B from
// shared memory. Wide: the warpgroups hold neighbouring tiles (for kSwiGlu, pairs of gate and up) and share the
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
  static_assert(kDeep + kSums + (kTokens == 256) == 1);
  static constexpr int kThreads = (kWarpgroups + 1) * kWarpgroup;  // the last warpgroup are the producers
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

inline constexpr int kProducerWarps = kWarpgroup / kWarp;

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

// One thread of each producer warp: warp w brings the weights of consumer warpgroup w, and its share of the inputs. Issuing
// a copy costs some 200 cycles, so the copies of a stage are spread over the warps.
template <typename Traits>
__device__ void Produce(const GemmParams& p, const GemmShared& shared, int num_items, int warp) {
  Ring ring;
  const bool has_weights = warp < Traits::kWarpgroups;
  for (int index = static_cast<int>(blockIdx.x); index < num_items; index += static_cast<int>(gridDim.x)) {
    const GemmItem item = GemmItem::Find<Traits>(p, index);
    if (item.rows <= 0) continue;
    const int tile = has_weights ? item.Tile<Traits>(p, warp) : -1;
    const uint8_t* weights = tile < 0 ? nullptr : item.TileData<Traits>(p, warp, tile);
    const uint32_t input_bytes = static_cast<uint32_t>((item.rows + kGroupRows - 1) / kGroupRows * kAtomBytes);
    const uint8_t* inputs = p.inputs + int64_t{item.first_row / kGroupRows} * kAtomBytes +
                            int64_t{item.problem} * p.problem_chunks * p.parts * p.part_bytes;
    // Wide: the parts of the one input chunk, dealt out after the weights. Deep: all parts of the own chunk.
    const int first_part = Traits::kDeep ? 0 : (warp + kProducerWarps - Traits::kWarpgroups % kProducerWarps) % kProducerWarps;
    const int part_step = Traits::kDeep ? 1 : kProducerWarps;
    const int num_parts = first_part < p.parts ? (p.parts - first_part + part_step - 1) / part_step : 0;
    const int begin = ChunkBegin<Traits>(p, warp), end = ChunkEnd<Traits>(p, warp);
    for (int i = 0; i < StagesOfItem<Traits>(p); ++i) {
      const int chunk = begin + i;
      uint64_t* full = &shared.full[ring.stage];
      uint8_t* stage = shared.Inputs(ring.stage);
      ptx::BarrierWait(&shared.empty[ring.stage], ring.phase ^ 1);
      ring.Next(shared.num_stages);
      if (chunk >= end) {
        ptx::BarrierArrive(full);
        continue;
      }
      ptx::BarrierArriveExpect(full, (weights != nullptr ? Traits::kChunk : 0) + num_parts * input_bytes);
      if (weights != nullptr) {
        ptx::BulkCopy(stage + (Traits::kInputs * p.parts * Traits::kTokens * 128 + warp * Traits::kChunk),
                      weights + int64_t{chunk} * Traits::kChunk, Traits::kChunk, full);
      }
      for (int part = first_part; part < p.parts; part += part_step) {
        ptx::BulkCopy(stage + ((Traits::kDeep ? warp : 0) * p.parts + part) * Traits::kTokens * 128,
                      inputs + (int64_t{chunk} * p.parts + part) * p.part_bytes, input_bytes, full);
      }
    }
  }
}

// Decodes the warpgroup's chunk of a stage into operand registers.
template <typename Traits, int kParts>
__device__ void DecodeChunk(const uint8_t* stage, int warpgroup, Fragments& a) {
  ChunkDecoder<Traits::kFormat>::Load(stage + Traits::kInputs * kParts * Traits::kTokens * 128 + warpgroup * Traits::kChunk,
                                      static_cast<int>(threadIdx.x) % kWarpgroup, a);
  // Decoded here and not behind the next fence, where ptxas would have to serialise the products.
#pragma unroll
  for (int step = 0; step < kChunkCols / kStepCols; ++step) ptx::WgmmaFenceRegisters(a[step]);
}

// Starts the products of a chunk. kColumns of the kTokens columns are computed: a column's bits do not depend on the others.
template <typename Traits, int kParts, int kColumns>
__device__ void StartChunk(const uint8_t* stage, int warpgroup, const Fragments& a, float (&sums)[Traits::kRegs]) {
  constexpr int kPartBytes = Traits::kTokens * 128;
  const uint32_t inputs = ptx::SharedAddress(stage + (Traits::kDeep ? warpgroup : 0) * kParts * kPartBytes);
  ptx::WgmmaFenceRegisters(sums);
  ptx::WgmmaFence();
#pragma unroll
  for (int step = 0; step < kChunkCols / kStepCols; ++step) {
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      ptx::Wgmma<kColumns>(sums, a[step], ptx::SwizzledOperand(inputs + part * kPartBytes + step * 32));
    }
  }
  ptx::WgmmaCommit();
}

// The chunks of a warpgroup, of `stages` stages the first `chunks`; one span or more, each from zero, added in order. The
// next chunk is decoded while this one is multiplied: the fence behind the wait keeps this one's registers until then, which
// the compiler thinks free as soon as the product has started.
template <typename Traits, int kParts, int kColumns>
struct SpanLoop {
  const GemmParams& p;
  const GemmShared& shared;
  int warpgroup;
  int chunks;
  Ring& ring;
  float (&sums)[Traits::kRegs];
  float (&total)[Traits::kSums ? Traits::kRegs : 1];
  int span = 0;
  int span_end = SpanBegin(p, 1);
  int done = 0;

  // Waits for the stage of a chunk, and decodes it.
  __device__ void Decode(const Ring& at, Fragments& a) {
    ptx::BarrierWait(&shared.full[at.stage], at.phase);
    DecodeChunk<Traits, kParts>(shared.Inputs(at.stage), warpgroup, a);
  }

  // Multiplies a chunk and decodes the next; returns whether there is one.
  __device__ bool Turn(Fragments& now, Fragments& next) {
    StartChunk<Traits, kParts, kColumns>(shared.Inputs(ring.stage), warpgroup, now, sums);
    Ring ahead = ring;
    ahead.Next(shared.num_stages);
    if (done + 1 < chunks) Decode(ahead, next);
    ptx::WgmmaWait();
    ptx::WgmmaFenceRegisters(sums);
#pragma unroll
    for (int step = 0; step < kChunkCols / kStepCols; ++step) ptx::WgmmaFenceRegisters(now[step]);
    if (threadIdx.x % kWarp == 0) ptx::BarrierArrive(&shared.empty[ring.stage]);
    ring = ahead;
    ++done;
    if constexpr (Traits::kSums) {
      if (done == span_end) {
#pragma unroll
        for (int r = 0; r < Traits::kRegs; ++r) {
          total[r] += sums[r];
          sums[r] = 0.0f;
        }
        span_end = SpanBegin(p, ++span + 1);
      }
    }
    return done < chunks;
  }
};

template <typename Traits, int kParts, int kColumns>
__device__ void MultiplySpans(const GemmParams& p, const GemmShared& shared, int warpgroup, int stages, int chunks, Ring& ring,
                              float (&sums)[Traits::kRegs]) {
  float total[Traits::kSums ? Traits::kRegs : 1] = {};
#pragma unroll
  for (int r = 0; r < Traits::kRegs; ++r) sums[r] = 0.0f;
  SpanLoop<Traits, kParts, kColumns> loop{p, shared, warpgroup, chunks, ring, sums, total};
  Fragments a, b;
  loop.Decode(ring, a);
  while (loop.Turn(a, b) && loop.Turn(b, a)) {
  }
  // A deep item's spans can differ by one chunk.
  for (int i = chunks; i < stages; ++i, ring.Next(shared.num_stages)) {
    ptx::BarrierWait(&shared.full[ring.stage], ring.phase);
    if (threadIdx.x % kWarp == 0) ptx::BarrierArrive(&shared.empty[ring.stage]);
  }
  if constexpr (Traits::kSums) {
#pragma unroll
    for (int r = 0; r < Traits::kRegs; ++r) sums[r] = total[r];
  }
}

// The product of a work item in a consumer warpgroup, with as few columns as its tokens need.
template <typename Traits, int kParts>
__device__ void MultiplyItem(const GemmParams& p, const GemmShared& shared, int warpgroup, int rows, Ring& ring,
                             float (&sums)[Traits::kRegs]) {
  const int stages = StagesOfItem<Traits>(p), chunks = ChunkEnd<Traits>(p, warpgroup) - ChunkBegin<Traits>(p, warpgroup);
  if constexpr (Traits::kTokens < 256) {
    MultiplySpans<Traits, kParts, Traits::kTokens>(p, shared, warpgroup, stages, chunks, ring, sums);
  } else if (rows <= 64) {
    MultiplySpans<Traits, kParts, 64>(p, shared, warpgroup, stages, chunks, ring, sums);
  } else if (rows <= 128) {
    MultiplySpans<Traits, kParts, 128>(p, shared, warpgroup, stages, chunks, ring, sums);
  } else if (rows <= 192) {
    MultiplySpans<Traits, kParts, 192>(p, shared, warpgroup, stages, chunks, ring, sums);
  } else {
    MultiplySpans<Traits, kParts, 256>(p, shared, warpgroup, stages, chunks, ring, sums);
  }
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
    p.y[int64_t{item.first_row + token} * p.y_stride + item.problem * p.problem_y + output] = value;
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
  // Made uniform for ptxas, which otherwise runs one product at a time.
  const int warpgroup = __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x) / kWarpgroup, 0);
  Ring ring;
  for (int index = static_cast<int>(blockIdx.x); index < num_items; index += static_cast<int>(gridDim.x)) {
    const GemmItem item = GemmItem::Find<Traits>(p, index);
    if (item.rows <= 0) continue;
    const int tile = item.Tile<Traits>(p, warpgroup);
    float sums[Traits::kRegs];
    MultiplyItem<Traits, kParts>(p, shared, warpgroup, item.rows, ring, sums);
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
      ptx::BarrierInit(&shared.full[i], kProducerWarps);
      ptx::BarrierInit(&shared.empty[i], Traits::kWarpgroups * kWarpgroup / kWarp);
    }
    ptx::FenceBarrierInit();
  }
  __syncthreads();
  if (threadIdx.x < Traits::kWarpgroups * kWarpgroup) {
    ptx::TakeRegisters<Traits::kConsumerRegisters>();
    if constexpr (Traits::kTokens == 256) {
      Consume<Traits, 1>(p, shared, num_items);  // ChooseGemm gives this shape to one part alone
    } else if (p.parts == 1) {
      Consume<Traits, 1>(p, shared, num_items);
    } else {
      Consume<Traits, 3>(p, shared, num_items);
    }
  } else {
    ptx::ReleaseRegisters<Traits::kProducerRegisters>();
    const int warp = static_cast<int>(threadIdx.x) / kWarp - Traits::kWarpgroups * kWarpgroup / kWarp;
    if (threadIdx.x % kWarp == 0) Produce<Traits>(p, shared, num_items, warp);
  }
}

}  // namespace deepinfer::backend::cuda
