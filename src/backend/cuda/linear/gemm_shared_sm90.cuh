// SPDX-License-Identifier: Apache-2.0
// What the producers and the consumers of the matrix kernel (gemm_sm90.cuh) share: its compiled shapes, the ring of stages in
// shared memory, and work items.
#pragma once

#include <algorithm>

#include "backend/cuda/device/reduce.cuh"
#include "backend/cuda/device/release.cuh"
#include "backend/cuda/linear/gemm.h"
#include "backend/cuda/linear/packed.h"

namespace deepinfer::backend::cuda {

// Widths of the products, ascending: an item takes the first that its tokens fit. Few, since each is a loop of its own and ptxas
// serialises all products (C7512) when it cannot give registers to all loops.
template <int... kColumns>
struct Widths {
  static constexpr int kMost = std::max({kColumns...});
};

// At most so many tokens are multiplied by products of a warp, more by those of a warpgroup.
inline constexpr int kWarpColumnsMax = 16;

// kTotals: items have several spans, which are added up in a second set of sums.
template <WeightFormat kFormat_, int kParts_, bool kTotals_, typename Columns_,
          int kTiles_ = BlockTiles(Columns_::kMost, kParts_, kTotals_)>
struct GemmKernelTraits {
  static constexpr WeightFormat kFormat = kFormat_;
  static constexpr int kParts = kParts_;
  static constexpr bool kTotals = kTotals_;
  using Columns = Columns_;
  static constexpr int kTiles = kTiles_;
  static constexpr int kWarpgroups = kTiles, kSplit = 1;  // of consumers, a tile each
  static constexpr int kThreads = (kWarpgroups + 1) * kWarpgroup;
  // The producer leaves its registers to the consumers. A block starts with what 64K registers give every thread, in
  // steps of 8; asking for more than that in all would wait for ever.
  static constexpr int kStartRegisters = 65536 / kThreads / 8 * 8;
  static constexpr int kConsumerRegisters = kTiles == kBlockTiles ? 112 : 232;
  static constexpr int kProducerRegisters = 32;
  static_assert(kTiles * kConsumerRegisters + kProducerRegisters <= (kTiles + 1) * kStartRegisters);
  static constexpr int kChunk = ChunkBytes(kFormat);
};

// Of an aligned format: a consumer warpgroup has kOwnTiles tiles, or kSplit of them share one.
template <WeightFormat kFormat_, int kTiles_, int kOwnTiles_, int kSplit_, typename Columns_>
struct AlignedTraits {
  static constexpr WeightFormat kFormat = kFormat_;
  static constexpr int kParts = 1;
  static constexpr bool kTotals = false;
  using Columns = Columns_;
  static constexpr int kTiles = kTiles_, kOwnTiles = kOwnTiles_, kSplit = kSplit_, kWarpgroups = kTiles / kOwnTiles * kSplit;
  static constexpr int kThreads = (kWarpgroups + 1) * kWarpgroup;
  static constexpr int kStartRegisters = 65536 / kThreads / 8 * 8;
  static constexpr int kConsumerRegisters = kWarpgroups == 4 ? 112 : 240;
  static constexpr int kProducerRegisters = kWarpgroups == 4 ? 32 : 24;
  static_assert(kWarpgroups * kConsumerRegisters + kProducerRegisters <= (kWarpgroups + 1) * kStartRegisters);
  static constexpr int kChunk = ChunkBytes(kFormat);
};

inline constexpr int kProducerWarps = kWarpgroup / kWarp;

// The dynamic shared memory, from a 1024-byte boundary on, as shared addresses: barriers in the first atom, then the stages.
struct GemmShared {
  uint32_t base;
  GemmMemory memory;
  uint32_t first_stage = 0;

  // Of the stages, part i of n.
  __device__ void TakePart(int i, int n) {
    if (n == 1) return;
    memory.num_stages /= n;
    first_stage = static_cast<uint32_t>(i * memory.num_stages);
  }
  __device__ uint32_t Full(int stage) const { return base + (first_stage + static_cast<uint32_t>(stage)) * 8; }
  __device__ uint32_t Empty(int stage) const { return Full(stage) + kStagesMax * 8; }
  __device__ uint32_t Stage(int stage) const {
    return base + kAtomBytes + (first_stage + static_cast<uint32_t>(stage)) * static_cast<uint32_t>(memory.stage_bytes);
  }
  // Set i of totals that warpgroups hand to each other.
  __device__ uint32_t Shelf(int i) const { return base + static_cast<uint32_t>(memory.shelves_at + i * memory.shelf_bytes); }
  // Bytes of a stage's inputs; its weights follow.
  __device__ int InputBytes(int parts) const { return memory.stage_chunks * parts * memory.part_bytes; }
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

  // The stage before.
  __device__ int Before(int num_stages) const { return (stage == 0 ? num_stages : stage) - 1; }
};

// One work item: the token tile, the outputs and the spans that the block computes.
struct GemmItem {
  int problem;
  int first_row;
  int rows;       // 0: nothing to do
  int row_block;
  int span;       // the first; all where spans are no items

  __device__ static GemmItem Find(const GemmParams& p, int index) {
    GemmItem item;
    const int band_tiles = p.num_token_tiles * p.span_items, first_block = index / (p.band * band_tiles) * p.band;
    const int width = min(p.band, p.row_blocks - first_block), in_band = index - first_block * band_tiles;
    item.row_block = first_block + in_band % width;
    item.span = in_band / width % p.span_items;
    const int tile = in_band / width / p.span_items;
    if (p.token_tiles != nullptr) {
      const TokenTile t = p.token_tiles[tile];
      item.problem = t.problem;
      item.first_row = t.first_row;
      item.rows = t.rows;
    } else {
      item.problem = tile / p.problem_token_tiles;
      item.first_row = tile % p.problem_token_tiles * p.tile_tokens;
      item.rows = min(p.tile_tokens, p.rows - item.first_row);
    }
    return item;
  }

  // First output of the problem in its matrix: problems with a matrix each begin at 0.
  __device__ int FirstOutput(const GemmParams& p) const { return p.matrices == nullptr ? problem * p.problem_rows : 0; }

  // Which of the problem's matrices: kSwiGlu takes both, gate in the even and up in the odd warpgroups.
  __device__ int MatrixOf(const GemmParams& p, int warpgroup) const {
    return p.epilogue == Epilogue::kSwiGlu ? warpgroup % 2 : row_block / (p.row_blocks / p.problem_matrices);
  }

  // The tile of a warpgroup, or -1 where it has none. For kSwiGlu two warpgroups have a tile of gate and of up: the producer
  // brings gate for the even and up for the odd one, and each multiplies half the rows of both.
  __device__ int Tile(const GemmParams& p, int warpgroup) const {
    const int tile = p.epilogue == Epilogue::kSwiGlu ? row_block * (p.block_tiles / 2) + warpgroup / 2
                                                     : row_block % (p.row_blocks / p.problem_matrices) * p.block_tiles + warpgroup;
    const int first = FirstOutput(p), absolute = first / kTileRows + tile;
    return absolute * kTileRows < first + p.problem_rows ? absolute : -1;
  }

  __device__ const uint8_t* TileData(const GemmParams& p, int warpgroup, int tile) const {
    const uint8_t* base = p.matrices == nullptr ? p.matrix : p.matrices[problem * p.problem_matrices + MatrixOf(p, warpgroup)];
    return base + tile * p.tile_bytes;
  }
};

__device__ inline int SpanBegin(const GemmParams& p, int span) { return span * p.num_chunks / p.spans; }
// Behind the last span of an item that begins with `span`.
__device__ inline int SpanEnd(const GemmParams& p, int span) { return p.span_items == 1 ? p.spans : span + 1; }

// The number of a warp or warpgroup, the same register in all lanes, which lets ptxas keep what follows from it uniform.
__device__ inline int UniformIndex(int threads) {
  return __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x) / threads, 0);
}

}  // namespace deepinfer::backend::cuda
