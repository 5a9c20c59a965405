// SPDX-License-Identifier: Apache-2.0
// Finding keys ahead of their use. Every producer warp looks up its own 16 keys of each pair of tiles, lane i < 16 those of
// tile i / 8, with copies into its own part of shared memory, a step of the chain a pair: three pairs ahead the choice (or
// the window's page) is copied, two ahead the choice's block; one ahead the place is known, and the key on its way into the
// second-level cache. A row's numbers are copied two items ahead. So no producer waits for a chain of loads, or for another.
#pragma once

#include "backend/cuda/attention/sparse_shared_sm90.cuh"

namespace deepinfer::backend::cuda::sparse {

struct ItemKeys {
  int first;   // position of the first window key
  int window;  // keys
  int latents;
};

__device__ inline ItemKeys KeysOf(const SparseParams& p, const RowNumbers& row) {
  const int first = max(max(row.position - p.op.window + 1, row.floor), 0);
  return {first, max(row.position - first + 1, 0), p.op.has_latents ? row.count : 0};
}

// The look-ups of one warp. Pairs are numbered over all items of the block; a number's slot is used again four pairs later.
class LookAhead {
 public:
  // Afterwards the first pair's places are known as far as `Advance` has been called with -3, -2 and -1.
  __device__ LookAhead(const SparseParams& p, Ahead& ahead) : ahead_(&ahead) {
    const int item = static_cast<int>(blockIdx.x);
    CopyRow(p, item, 0);
    CopyRow(p, item + Step(), 1);
    ptx::WaitForCopies();
    __syncwarp();
    CopyFirstPage(p, item, 0);
    ptx::EndCopyGroup();
    SetNext(item, 0, 0);
  }

  __device__ const RowNumbers& Row(int number) const { return ahead_->rows[number % kRowRing]; }
  __device__ int Flags(int pair) const { return ahead_->flags[pair % kRing]; }
  // The lane's key of a tile.
  __device__ int Place(int pair, int tile) const {
    return ahead_->places[pair % kRing][tile * kWarpKeys + Lane() % kWarpKeys];
  }

  // To be called once for each pair, before its keys are stored. The next pair's places are known afterwards.
  // kPending: groups of copies that the thread has begun since.
  template <int kPending>
  __device__ void Advance(const SparseParams& p, int pair) {
    ptx::WaitForCopyGroups<kPending>();
    __syncwarp();
    if (pair >= -1) FindPlace(p, pair + 1);
    if (pair >= -2) CopyBlock(p, pair + 2);
    CopyChoice(p, pair + 3);
    ptx::EndCopyGroup();
    __syncwarp();
  }

 private:
  __device__ static int Step() { return static_cast<int>(gridDim.x); }
  __device__ static int Lane() { return Producer() % kWarp; }
  __device__ void CopyRow(const SparseParams& p, int item, int number) {
    if (item >= p.num_items) return;
    RowNumbers& to = ahead_->rows[number % kRowRing];
    const int64_t row = p.RowOf(item);
    const int lane = Lane();
    if (lane == 0) ptx::CopyWord(&to.position, p.op.positions + row);
    if (lane == 1) ptx::CopyWord(&to.floor, p.op.window_floor + row);
    if (lane == 2) ptx::CopyWord(&to.request, p.op.requests + row);
    if (lane == 3 && p.op.has_latents) ptx::CopyWord(&to.count, p.op.selected_count + row);
  }
  __device__ void CopyFirstPage(const SparseParams& p, int item, int number) {
    RowNumbers& to = ahead_->rows[number % kRowRing];
    if (item < p.num_items && Lane() == 0) ptx::CopyWord(&to.first_page, p.op.window_cache.first_page + to.request);
  }

  // Begins the look-up of the lane's key of the pair after the last one.
  __device__ void CopyChoice(const SparseParams& p, int pair) {
    const int slot = pair % kRing, lane = Lane(), item = ahead_->item, number = ahead_->number, pair_of_item = ahead_->pair;
    if (item >= p.num_items) {
      if (lane == 0) ahead_->flags[slot] = kEnd;
      return;
    }
    if (pair_of_item == 0) {
      CopyRow(p, item + 2 * Step(), number + 2);
      CopyFirstPage(p, item + Step(), number + 1);
    }
    const RowNumbers& row = Row(number);
    const ItemKeys keys = KeysOf(p, row);
    const int window_tiles = Tiles(keys.window), first_tile = 2 * pair_of_item;
    if (lane == 0) {
      ahead_->requests[slot] = row.request;
      ahead_->flags[slot] = (first_tile < window_tiles ? kFirstIsWindow : 0) | (first_tile + 1 < window_tiles ? kSecondIsWindow : 0) |
                            (pair_of_item == 0 ? kFirst : 0);
    }
    if (lane < 2 * kWarpKeys) {
      const int tile = first_tile + lane / kWarpKeys, in_tile = Producer() / kWarp * kWarpKeys + lane % kWarpKeys;
      const int key = (tile < window_tiles ? tile : tile - window_tiles) * kTileKeys + in_tile;
      int& index = ahead_->indices[slot][lane];
      if (tile >= window_tiles && key < keys.latents) {
        ptx::CopyWord(&index, p.op.selected + p.RowOf(item) * p.op.topk + key);
      } else if (tile < window_tiles && key < keys.window) {
        const int position = keys.first + key;
        index = position;
        ptx::CopyWord(&ahead_->places[slot][lane], p.op.window_cache.pages + int64_t{row.request} * p.op.window_cache.pages_stride +
                                                       position / kBlockTokens - row.first_page);
      } else {
        index = -1;
      }
    }
    const bool last = pair_of_item + 1 == Pairs(keys.window, keys.latents);
    __syncwarp();
    SetNext(last ? item + Step() : item, last ? number + 1 : number, last ? 0 : pair_of_item + 1);
  }

  __device__ void SetNext(int item, int number, int pair) {
    if (Lane() != 0) return;
    ahead_->item = item;
    ahead_->number = number;
    ahead_->pair = pair;
  }

  __device__ bool IsWindow(int slot, int lane) const { return (ahead_->flags[slot] >> lane / kWarpKeys % 2 & 1) != 0; }

  __device__ void CopyBlock(const SparseParams& p, int pair) {
    const int slot = pair % kRing, lane = Lane();
    if ((ahead_->flags[slot] & kEnd) != 0 || lane >= 2 * kWarpKeys || IsWindow(slot, lane)) return;
    const int index = ahead_->indices[slot][lane];
    if (index < 0) return;
    const int32_t* blocks = p.op.latent_cache.blocks + int64_t{ahead_->requests[slot]} * p.op.latent_cache.blocks_stride;
    ptx::CopyWord(&ahead_->places[slot][lane], blocks + (index >> p.latents_shift));
  }

  // Two lanes a key bring it into the second-level cache.
  __device__ void FindPlace(const SparseParams& p, int pair) {
    const int slot = pair % kRing, lane = Lane(), key = lane % (2 * kWarpKeys), half = lane / (2 * kWarpKeys);
    if ((ahead_->flags[slot] & kEnd) != 0) return;
    const int index = ahead_->indices[slot][key], number = ahead_->places[slot][key];
    const bool is_window = IsWindow(slot, key);
    const int in_block = index & (is_window ? kBlockTokens - 1 : (1 << p.latents_shift) - 1);
    __syncwarp();
    if (half == 0) ahead_->places[slot][key] = index < 0 ? -1 : number * kBlockTokens + in_block;
    if (index < 0) return;
    if (is_window) {
      const auto* base =
          reinterpret_cast<const uint8_t*>(p.op.window_cache.base) + size_t{static_cast<uint32_t>(number) * p.page_units} * 16;
      ptx::Prefetch(base + in_block * kDim + half * 256);
      ptx::Prefetch(base + in_block * kDim + half * 256 + 128);
      if (half == 0) ptx::Prefetch(base + kBlockTokens * kDim + in_block * (kDim / 32));
    } else {
      const auto* base =
          reinterpret_cast<const uint8_t*>(p.op.latent_cache.base) + size_t{static_cast<uint32_t>(number) * p.block_units} * 16;
      ptx::Prefetch(base + in_block * (kDim / 2) + half * 128);
      if (half == 0) ptx::Prefetch(base + size_t{p.scale_units} * 16 + in_block * (kDim / 16));
    }
  }

  Ahead* ahead_;
};

}  // namespace deepinfer::backend::cuda::sparse
