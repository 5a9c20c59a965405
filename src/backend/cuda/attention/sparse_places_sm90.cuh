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
  __device__ LookAhead(const SparseParams& p, Shared& shared) : shared_(&shared) {
    const int item = static_cast<int>(blockIdx.x);
    CopyRow(p, item, 0);
    CopyRow(p, item + Step(), 1);
    ptx::WaitForCopies();
    if (Lane() < kRing) ahead().pairs[Lane()].x = kEnd;
    if (Lane() == 0) ahead().next = make_int4(item - Step(), -1, 0, 0);
    __syncwarp();
    CopyFirstPage(p, item, 0);
    ptx::EndCopyGroup();
  }

  __device__ int Flags(int pair) const { return ahead().pairs[Slot(pair)].x; }
  __device__ int Item(int pair) const { return ahead().pairs[Slot(pair)].z; }
  __device__ int PairOfItem(int pair) const { return ahead().pairs[Slot(pair)].w >> 16; }
  __device__ int NumberOfItem(int pair) const { return ahead().pairs[Slot(pair)].w & 0xFFFF; }
  // Window keys and latents of the pair's item.
  __device__ int2 CountsOf(const SparseParams& p, int pair) const {
    const ItemKeys keys = KeysOf(p, Row(NumberOfItem(pair)));
    return make_int2(keys.window, keys.latents);
  }
  // The place of the lane's key of a tile.
  __device__ Place PlaceOf(int pair, int tile) const {
    const int2 place = ahead().keys[Slot(pair)][tile * kWarpKeys + Lane() % kWarpKeys];
    return {static_cast<uint32_t>(place.x), static_cast<uint32_t>(place.y)};
  }

  // To be called once for each pair, before its keys are stored. The next pair's places are known afterwards.
  // kPending: groups of copies that the thread has begun since.
  template <int kPending>
  __device__ void Advance(const SparseParams& p, int pair) {
    ptx::WaitForCopyGroups<kPending>();
    __syncwarp();
    // All is read first: what is in flight then hides the latency of the rest.
    const int lane = Lane();
    const uint32_t last = Slot(pair + 1), middle = Slot(pair + 2);
    const int key = lane % (2 * kWarpKeys);
    const int last_flags = ahead().pairs[last].x;
    const int2 found = ahead().keys[last][key];
    const int middle_flags = ahead().pairs[middle].x, middle_request = ahead().pairs[middle].y;
    const int index = ahead().keys[middle][key].x;
    int4 next = ahead().next;
    if (next.z == next.w) EnterItem(p, next);
    const int4 item = ahead().item[0], rest = ahead().item[1];
    __syncwarp();
    if ((last_flags & kEnd) == 0) FindPlace(p, (last_flags >> key / kWarpKeys & 1) != 0, found, ahead().keys[last][key]);
    if (lane < 2 * kWarpKeys && (middle_flags & kEnd) == 0 && (middle_flags >> lane / kWarpKeys & 1) == 0 && index >= 0) {
      ptx::CopyWord(&ahead().keys[middle][lane].y,
                    p.op.latent_cache.blocks + int64_t{middle_request} * p.op.latent_cache.blocks_stride + (index >> p.latents_shift));
    }
    CopyChoice(p, pair + 3, next, item, rest);
    ptx::EndCopyGroup();
    __syncwarp();
  }

 private:
  __device__ const RowNumbers& Row(int number) const { return ahead().rows[static_cast<uint32_t>(number) % kRowRing]; }
  __device__ static int Step() { return static_cast<int>(gridDim.x); }
  __device__ static int Lane() { return static_cast<int>(static_cast<uint32_t>(Producer()) % kWarp); }
  // Unsigned: a signed division by a power of two is four instructions.
  __device__ static uint32_t Warp() { return static_cast<uint32_t>(Producer()) / kWarp; }
  __device__ static uint32_t Slot(int pair) { return static_cast<uint32_t>(pair) % kRing; }

  __device__ void CopyRow(const SparseParams& p, int item, int number) {
    if (item >= p.num_items) return;
    RowNumbers& to = ahead().rows[static_cast<uint32_t>(number) % kRowRing];
    const int64_t row = p.RowOf(item);
    const int lane = Lane();
    if (lane == 0) ptx::CopyWord(&to.position, p.op.positions + row);
    if (lane == 1) ptx::CopyWord(&to.floor, p.op.window_floor + row);
    if (lane == 2) ptx::CopyWord(&to.request, p.op.requests + row);
    if (lane == 3 && p.op.has_latents) ptx::CopyWord(&to.count, p.op.selected_count + row);
  }
  __device__ void CopyFirstPage(const SparseParams& p, int item, int number) {
    RowNumbers& to = ahead().rows[static_cast<uint32_t>(number) % kRowRing];
    if (item < p.num_items && Lane() == 0) ptx::CopyWord(&to.first_page, p.op.window_cache.first_page + to.request);
  }

  // The next item becomes the one whose pairs are looked up.
  __device__ void EnterItem(const SparseParams& p, int4& next) {
    next = make_int4(next.x + Step(), next.y + 1, 0, 1);
    if (next.x >= p.num_items) return;
    CopyRow(p, next.x + 2 * Step(), next.y + 2);
    CopyFirstPage(p, next.x + Step(), next.y + 1);
    const RowNumbers& row = Row(next.y);
    const ItemKeys keys = KeysOf(p, row);
    next.w = Pairs(keys.window, keys.latents);
    if (Lane() == 0) {
      ahead().item[0] = make_int4(keys.first, keys.window, keys.latents, row.request);
      ahead().item[1] = make_int4(Tiles(keys.window), row.first_page, static_cast<int>(p.RowOf(next.x)), 0);
    }
    __syncwarp();
  }

  // Begins the look-up of the lane's key of a pair.
  __device__ void CopyChoice(const SparseParams& p, int pair, int4 next, const int4& item, const int4& rest) {
    const uint32_t slot = Slot(pair);
    const int lane = Lane(), first_tile = 2 * next.z, window_tiles = rest.x;
    if (next.x >= p.num_items) {
      if (lane == 0) ahead().pairs[slot].x = kEnd;
      if (lane < 2 * kWarpKeys) ahead().keys[slot][lane].x = -1;
      --next.z;  // the next call comes here again
    } else {
      if (lane == 0) {
        const int flags = (first_tile < window_tiles ? kFirstIsWindow : 0) | (first_tile + 1 < window_tiles ? kSecondIsWindow : 0);
        ahead().pairs[slot] = make_int4(flags | (next.z == 0 ? kFirst : 0), item.w, next.x, next.y + next.z * 65536);
      }
      if (lane < 2 * kWarpKeys) {
        const int tile = first_tile + lane / kWarpKeys;
        const int key = tile * kTileKeys + static_cast<int>(Warp()) * kWarpKeys + lane % kWarpKeys, chosen = key - window_tiles * kTileKeys;
        int2& to = ahead().keys[slot][lane];
        if (tile >= window_tiles && chosen < item.z) {
          ptx::CopyWord(&to.x, p.op.selected + int64_t{rest.z} * p.op.topk + chosen);
        } else if (tile < window_tiles && key < item.y) {
          const int position = item.x + key;
          to.x = position;
          const int32_t* pages = p.op.window_cache.pages + int64_t{item.w} * p.op.window_cache.pages_stride;
          ptx::CopyWord(&to.y, pages + position / kBlockTokens - rest.y);
        } else {
          to.x = -1;
        }
      }
    }
    ++next.z;
    if (lane == 0) ahead().next = next;
  }

  // Two lanes a key bring it into the second-level cache.
  __device__ void FindPlace(const SparseParams& p, bool is_window, const int2& found, int2& to) {
    const int half = Lane() / (2 * kWarpKeys);
    const uint32_t in_block = static_cast<uint32_t>(found.x & (is_window ? kBlockTokens - 1 : (1 << p.latents_shift) - 1));
    const uint32_t begin = static_cast<uint32_t>(found.y) * (is_window ? p.page_units : p.block_units);
    const uint32_t codes = begin + in_block * (is_window ? kDim / 16 : kDim / 2 / 16);
    const uint32_t scales = begin + (is_window ? kBlockTokens * kDim / 16 + in_block : p.scale_units + in_block * 2);
    if (half == 0) to = make_int2(found.x < 0 ? -1 : static_cast<int>(codes), static_cast<int>(scales));
    if (found.x < 0) return;
    const auto* base = reinterpret_cast<const uint8_t*>(is_window ? p.op.window_cache.base : p.op.latent_cache.base);
    const uint8_t* at = base + size_t{codes} * 16;
    ptx::Prefetch(at + half * 128);
    if (is_window) ptx::Prefetch(at + 256 + half * 128);
    if (half == 0) ptx::Prefetch(base + size_t{scales} * 16);
  }

  __device__ Ahead& ahead() const { return shared_->ahead[Warp()]; }

  Shared* shared_;
};

}  // namespace deepinfer::backend::cuda::sparse
