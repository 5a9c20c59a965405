// SPDX-License-Identifier: Apache-2.0
// What the two sides of the sparse attention kernel share: sizes, shared memory, and the list of work items.
#pragma once

#include "backend/cuda/attention/keys.cuh"
#include "backend/cuda/device/reduce.cuh"
#include "backend/cuda/ptx/pipeline.cuh"

namespace deepinfer::backend::cuda::sparse {

constexpr int kHeads = 64;  // of a work item
constexpr int kDim = 512;
constexpr int kTileKeys = 64;
constexpr int kWarpgroup = 128;
constexpr int kConsumers = 2 * kWarpgroup, kProducers = 2 * kWarpgroup;
constexpr int kThreads = kConsumers + kProducers;
constexpr int kConsumerRegisters = 192, kProducerRegisters = 64;  // 4 x 128 in all
constexpr float kLog2E = 1.4426950408889634f;
constexpr int kTurnedMax = 64;                                    // channels, at most, that are turned: the last
constexpr int kChunks = kDim / 64;                                // runs of 64 channels: 128 bytes
constexpr int kChunkBytes = kTileKeys * 128;                      // also of the query: 64 rows

// What the kernel takes: the op's parameters and what would need divisions. A work item is a row's run of 64 heads; a block
// takes every gridDim.x-th.
struct SparseParams {
  AttentionParams op;
  int32_t num_items;
  int32_t head_runs;
  int32_t latents_shift;  // latents of a block, as a power of two
  uint32_t page_units;   // bytes / 16
  uint32_t block_units;
  uint32_t scale_units;  // from a block's begin to its latents' scales
  const int32_t* num_decoded;  // device, or nullptr: where it is not 0, rows gather decoded keys (gather_launch.h)
  int64_t input_part_bytes;  // of a chunk of 64 channels of all rows, where the outputs are inputs of a linear

  // Most models have one run: a division costs more than decoding a key.
  __device__ int64_t RowOf(int item) const { return head_runs == 1 ? item : item / head_runs; }
  __device__ int FirstHead(int item) const { return head_runs == 1 ? 0 : item % head_runs * kHeads; }
};

// Keys come in pairs of tiles. A half is 256 of a tile's channels: the unit in which buffers fill and become free.
enum Half { kLeft = 0, kRight = 1 };

constexpr int kWarpKeys = kTileKeys / (kProducers / kWarp);  // of a tile, for a producer warp
constexpr int kRing = 4, kRowRing = 8;                       // pairs and items that are being looked up

struct RowNumbers {
  int position, floor, request, count, first_page;
};

// Where a key lies, in units of 16 bytes from its cache's begin: caches can be larger than 4 GiB.
struct Place {
  uint32_t codes;  // kNoKey: no key
  uint32_t scales;
};
constexpr uint32_t kNoKey = ~0u;

// What a producer warp looks up (sparse_places_sm90.cuh), by pair % kRing and key.
enum PairFlags { kFirstIsWindow = 1, kSecondIsWindow = 2, kFirst = 4, kEnd = 8 };  // tiles; of an item; no pair any more
struct alignas(16) Ahead {
  int4 next;                        // of the next pair to begin with: item, the item's number, pair in it; the item's pairs
  int4 item[2];                     // first position, window keys, latents, request; tiles of window keys, first page, row
  int2 keys[kRing][2 * kWarpKeys];  // position or chosen latent (-1: no key), and page or block; then a Place
  int4 pairs[kRing];                // flags, request, item, the item's number + 65536 * the pair in it
  RowNumbers rows[kRowRing];        // by the number of the item
};

// A step on its way, each producer's own (sparse_produce_sm90.cuh).
struct Stage {
  alignas(16) uint8_t codes[2][kProducers][16];
  uint32_t scales[2][kProducers];
};

// Where producers and consumers meet.
struct Meeting {
  Meeting() = delete;  // nobody makes one; and so what a derived struct adds begins in the room that alignment leaves at the end

  alignas(1024) uint8_t query[kChunks * kChunkBytes];
  alignas(1024) uint8_t keys[2][kChunks * kChunkBytes];  // [tile of the pair]
  alignas(1024) uint8_t weights[2][kHeads * kTileKeys * 2];
  float tops[2][kHeads];  // running maxima after the tile of the pair
  float sums[2][kHeads];
  float sinks[2][kHeads];      // of an item and the next, times log2(e)
  float turns[2][kTurnedMax];  // cosine and sine of each pair of the last channels, also of both
  int2 counts;                 // of the item: window keys, latents
  uint64_t full[2][2];  // [tile][half]
  uint64_t empty[2][2];
  uint64_t query_full;
  uint64_t query_empty;  // scores are done
};
// With what producers that decode need for themselves.
struct Shared : Meeting {
  Stage stage;
  Ahead ahead[kProducers / kWarp];
};

// Byte of a 16-byte unit within a swizzled run of 64 channels (or keys).
__device__ inline int UnitOffset(int row, int unit) { return row / 8 * 1024 + row % 8 * 128 + (unit ^ row % 8) * 16; }

constexpr int Tiles(int keys) { return (keys + kTileKeys - 1) / kTileKeys; }

// Window keys and latents have tiles of their own; an item without keys has one pair of empty tiles.
__device__ inline int Pairs(int window, int latents) { return max((Tiles(window) + Tiles(latents) + 1) / 2, 1); }

// The calling producer's number, read anew at each call: what is computed from it is then not kept in registers, or spilled,
// across the loops.
__device__ inline int Producer() {
  int thread;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  return thread - kConsumers;
}

}  // namespace deepinfer::backend::cuda::sparse
