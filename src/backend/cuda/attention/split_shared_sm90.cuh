// SPDX-License-Identifier: Apache-2.0
// What the two sides of the split attention kernel share (split_attention_sm90.cu): sizes, shared memory, and which tiles and channels are
// whose.
#pragma once

#include "backend/cuda/attention/sparse_shared_sm90.cuh"
#include "backend/cuda/ptx/cluster.cuh"

namespace deepinfer::backend::cuda::sparse {

constexpr int kSplitTiles = 10;  // at most, of an item: their weights have room where the query was
constexpr int kSplitProducers = 4 * kWarpgroup;
constexpr int kSplitThreads = kConsumers + kSplitProducers;
constexpr int kSlots = 4, kSlotChunks = 4;  // as many slots as warpgroups of producers

// A tile's weights, and what each thread of the warpgroup that made them adds to the denominators of its two heads.
struct TileWeights {
  uint8_t weights[kHeads * kTileKeys * 2];
  float2 sums[kWarpgroup];
};

struct SplitShared {
  // At first the query.
  alignas(1024) TileWeights tiles[kSplitTiles];
  alignas(1024) uint8_t slots[kSlots][kSlotChunks * kChunkBytes];
  float2 best[kSplitTiles][kHeads / 2];  // largest scores of a tile: of heads 16 i + j and 16 i + j + 8 in place 8 i + j
  Place places[kSplitTiles * kTileKeys];
  uint64_t full[kSlots], empty[kSlots];
  uint64_t query_ready, best_ready, weights_ready[kSplitTiles];

  __device__ uint8_t* query() { return tiles[0].weights; }
};
static_assert(kChunks * kChunkBytes <= kSplitTiles * sizeof(TileWeights) && sizeof(TileWeights) % 1024 == 0);

// What slots are filled with, in order. A block first scores its own tiles, every kBlocks-th of the item, the last one first, since window
// keys take longer to bring: a slot is half of a tile, with 256 channels. Then it sums its own channels over all tiles: a slot has
// kBlocks / 2 tiles. Of eight blocks each has one chunk: the first warpgroup of consumers alone sums it.
template <int kBlocks>
struct SplitFills {
  static constexpr int kChunksOfBlock = kChunks / kBlocks;
  static constexpr int kTilesOfSlot = kSlotChunks / kChunksOfBlock;
  static constexpr int kOwnTiles = (kSplitTiles + kBlocks - 1) / kBlocks;  // at most
  static constexpr int kSumming = kChunksOfBlock > 1 ? 2 : 1;              // warpgroups that sum channels
  static constexpr int kRuns = kChunksOfBlock / kSumming;                  // chunks of each
  // The fewer tiles a warpgroup scores, the fewer registers it needs: 80 x 768 in all.
  static constexpr int kConsumerRegisters = kBlocks == 2 ? 144 : kBlocks == 4 ? 128 : 112;
  static constexpr int kProducerRegisters = kBlocks == 2 ? 48 : kBlocks == 4 ? 56 : 64;
  static_assert(kConsumers * kConsumerRegisters + kSplitProducers * kProducerRegisters == kSplitThreads * 80);

  int rank;
  int tiles;

  __device__ int own() const { return (tiles - rank + kBlocks - 1) / kBlocks; }
  __device__ int OwnTile(int number) const { return rank + kBlocks * (own() - 1 - number); }
  // The left half is summed first in even tiles, the right one in odd ones; kBlocks is even.
  __device__ int HalfOf(int fill) const { return (fill ^ rank) & 1; }
  // Left channels take tiles in order, right ones the odd tile of a pair before the even one.
  __device__ int right() const { return rank >= kBlocks / 2 ? 1 : 0; }

  __device__ int scored() const { return 2 * own(); }
  __device__ int all() const { return scored() + (tiles + kTilesOfSlot - 1) / kTilesOfSlot; }
};

}  // namespace deepinfer::backend::cuda::sparse
