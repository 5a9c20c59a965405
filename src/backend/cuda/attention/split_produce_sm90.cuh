// SPDX-License-Identifier: Apache-2.0
// The producers of the split attention kernel: they find the item's keys, all at once, and fill slots with decoded ones. Each warpgroup has
// a slot of its own, a warp sixteen keys of each tile: while one waits for what it loads, others decode.
#pragma once

#include "backend/cuda/attention/sparse_decode_sm90.cuh"
#include "backend/cuda/attention/sparse_places_sm90.cuh"
#include "backend/cuda/attention/split_shared_sm90.cuh"

namespace deepinfer::backend::cuda::sparse {

__device__ inline Place WindowPlace(const SparseParams& p, int position, int page) {
  const uint32_t in_block = static_cast<uint32_t>(position & (kBlockTokens - 1)), begin = static_cast<uint32_t>(page) * p.page_units;
  return {begin + in_block * (kDim / 16), begin + kBlockTokens * kDim / 16 + in_block};
}
__device__ inline Place LatentPlace(const SparseParams& p, int chosen, int block) {
  const uint32_t in_block = static_cast<uint32_t>(chosen & ((1 << p.latents_shift) - 1));
  const uint32_t begin = static_cast<uint32_t>(block) * p.block_units;
  return {begin + in_block * (kDim / 2 / 16), begin + p.scale_units + in_block * 2};
}

// Brings a key into the second-level cache.
__device__ inline void PrefetchKey(const std::byte* cache, const Place& place, int code_bytes) {
  const auto* base = reinterpret_cast<const uint8_t*>(cache);
  for (int at = 0; at < code_bytes; at += 128) ptx::Prefetch(base + size_t{place.codes} * 16 + at);
  ptx::Prefetch(base + size_t{place.scales} * 16);
}

// Writes the places of all keys, each by one thread; those of the block's own tiles are brought near.
template <int kBlocks>
__device__ inline ItemKeys FindPlaces(const SparseParams& p, SplitShared& shared, int64_t row, int rank) {
  const int producer = Producer();
  // What needs nothing is loaded first.
  int chosen = 0;
  if (p.op.has_latents && producer < p.op.topk) chosen = p.op.selected[row * p.op.topk + producer];
  const int count = p.op.has_latents ? p.op.selected_count[row] : 0, request = p.op.requests[row];
  const RowNumbers numbers = {p.op.positions[row], p.op.window_floor[row], request, count, 0};
  const ItemKeys keys = KeysOf(p, numbers);
  const bool is_latent = producer < keys.latents, is_window = producer < keys.window;
  const int position = keys.first + producer, window_tiles = Tiles(keys.window), tiles = 2 * Pairs(keys.window, keys.latents);
  const int tile = producer / kTileKeys;
  const int32_t* pages = p.op.window_cache.pages + int64_t{request} * p.op.window_cache.pages_stride;
  const int first_page = p.op.window_cache.first_page[request];
  int block = 0;
  if (is_latent) block = p.op.latent_cache.blocks[int64_t{request} * p.op.latent_cache.blocks_stride + (chosen >> p.latents_shift)];
  Place place = LatentPlace(p, chosen, block);
  if (is_latent && (window_tiles + tile) % kBlocks == rank) PrefetchKey(p.op.latent_cache.base, place, kDim / 2);
  for (int key = producer; key < (tiles - window_tiles) * kTileKeys; key += kSplitProducers) {
    if (key >= keys.latents) place.codes = kNoKey;
    shared.places[window_tiles * kTileKeys + key] = place;
  }
  int page = 0;
  if (is_window) page = pages[position / kBlockTokens - first_page];
  place = WindowPlace(p, position, page);
  if (!is_window) place.codes = kNoKey;
  if (is_window && tile % kBlocks == rank) PrefetchKey(p.op.window_cache.base, place, kDim);
  if (producer < window_tiles * kTileKeys) shared.places[producer] = place;
  return keys;
}

// A thread's part of two chunks of a key: 16-byte units as read, of window keys one of each chunk, of latents one in all. All zeros: no
// key.
template <bool kWindow>
struct Piece {
  uint32_t codes[kWindow ? 2 : 1][4];
  uint32_t scales;
};

// Where two neighbouring chunks of a slot come from.
struct PieceAt {
  int tile;
  int chunk;  // the first of two of the key's eight
};
template <int kBlocks>
__device__ inline PieceAt FindPiece(const SplitFills<kBlocks>& fills, int fill, int piece) {
  if (fill < fills.scored()) return {fills.OwnTile(fill / 2), fills.HalfOf(fill) * 4 + piece * 2};
  constexpr int kOfBlock = SplitFills<kBlocks>::kChunksOfBlock;
  const int slot = fill - fills.scored();
  const int tile = SplitFills<kBlocks>::kTilesOfSlot == 1 ? slot ^ fills.right() : slot * 2 + piece;
  return {tile, fills.rank * kOfBlock + piece * 2 % kOfBlock};
}

// The thread's first key of a tile, whose row of eight it is, and its part of the key's units.
struct ThreadKeys {
  uint32_t first, row, part;
};
__device__ inline ThreadKeys FindThreadKeys() {
  const uint32_t t = threadIdx.x;
  return {t % kWarpgroup / kWarp * 16 + t % 8, t % 8, t % kWarp / 8};
}

// Without branches: loads under one are waited for where it joins.
template <bool kWindow>
__device__ inline void LoadPiece(const SparseParams& p, const SplitShared& shared, const ThreadKeys& t, const PieceAt& at, int octet,
                                 Piece<kWindow>& piece) {
  const Place place = shared.places[static_cast<uint32_t>(at.tile * kTileKeys + octet * 8) + t.first];
  const bool is_there = place.codes != kNoKey;
  const auto* base = reinterpret_cast<const uint8_t*>(kWindow ? p.op.window_cache.base : p.op.latent_cache.base);
  const auto chunk = static_cast<uint32_t>(at.chunk);
  const uint8_t* codes = base + size_t{place.codes} * 16 + (chunk * (kWindow ? 64 : 32) + t.part * 16);
  const uint8_t* scales = base + size_t{place.scales} * 16 + (kWindow ? chunk * 2 : chunk * 4 + t.part / 2 * 4);
  ptx::LoadOnceIf(is_there, codes, piece.codes[0]);
  if constexpr (kWindow) ptx::LoadOnceIf(is_there, codes + 64, piece.codes[1]);
  ptx::LoadWordOnceIf(is_there, scales, piece.scales);
}

// As StoreLatents and StoreWindow (sparse_produce_sm90.cuh); `to` is the key's row in the piece's first chunk.
__device__ inline void StorePiece(const ThreadKeys& t, const Piece<false>& piece, uint32_t to) {
  const uint32_t part = t.part, row = t.row;
  to = (to + part / 2 * kChunkBytes) | (((part % 2 * 2 + part / 2 * 4) ^ row) * 16);
  uint32_t scales[2];
  LatentScales(piece.scales >> part % 2 * 16, scales);
  uint4 units[2];
#pragma unroll
  for (uint32_t e = 0; e < 2; ++e) {
    DecodeLatent(piece.codes[0][2 * e], piece.codes[0][2 * e + 1], scales[e], units);
    ptx::StoreShared(to ^ e * 16, units[0]);
    ptx::StoreShared(to ^ (e * 16 + 64), units[1]);
  }
}
__device__ inline void StorePiece(const ThreadKeys& t, const Piece<true>& piece, uint32_t to) {
  const uint32_t part = t.part, row = t.row;
  to |= (part ^ row) * 16;
  uint4 units[2];
#pragma unroll
  for (uint32_t i = 0; i < 2; ++i) {
    DecodeWindow(piece.codes[i], WindowScale(piece.scales >> (part / 2 * 8 + i * 16) & 0xFF), units);
    ptx::StoreShared((to ^ i * 64) + i * kChunkBytes, units[0]);
    ptx::StoreShared((to ^ (1 - i) * 64) + i * kChunkBytes, units[1]);
  }
}

// Waits until the slot is free; without the zero ptxas begins to decode, and waits for the loads, before the wait.
__device__ inline uint32_t WaitForSlot(SplitShared& shared, int fill) {
  return ptx::BarrierWaitZero(&shared.empty[fill % kSlots], static_cast<uint32_t>(~(fill / kSlots)) & 1);
}
__device__ inline uint32_t SlotAddress(SplitShared& shared, const ThreadKeys& t, int fill, int piece, int octet) {
  return ptx::SharedAddress(shared.slots[fill % kSlots]) + static_cast<uint32_t>(piece * 2 * kChunkBytes + octet * 1024) + t.first * 128;
}

// A slot whose pieces are both of latents, or both of window keys; of these not all loads find registers at once.
template <bool kWindow>
__device__ inline void FillSlot(const SparseParams& p, SplitShared& shared, const ThreadKeys& t, const PieceAt (&at)[2], int fill) {
  constexpr int kAtOnce = kWindow ? 2 : 4;
  Piece<kWindow> pieces[4];
#pragma unroll
  for (int i = 0; i < kAtOnce; ++i) LoadPiece(p, shared, t, at[i / 2], i % 2, pieces[i]);
  const uint32_t zero = WaitForSlot(shared, fill);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    pieces[i].scales ^= zero;
    StorePiece(t, pieces[i], SlotAddress(shared, t, fill, i / 2, i % 2));
    if (i + kAtOnce < 4) LoadPiece(p, shared, t, at[(i + kAtOnce) / 2], (i + kAtOnce) % 2, pieces[i + kAtOnce]);
  }
}

// One piece, where a slot has both kinds.
template <bool kWindow>
__device__ inline void FillPiece(const SparseParams& p, SplitShared& shared, const ThreadKeys& t, const PieceAt& at, int fill, int piece) {
  Piece<kWindow> pieces[2];
#pragma unroll
  for (int octet = 0; octet < 2; ++octet) LoadPiece(p, shared, t, at, octet, pieces[octet]);
  const uint32_t zero = WaitForSlot(shared, fill);
#pragma unroll
  for (int octet = 0; octet < 2; ++octet) {
    pieces[octet].scales ^= zero;
    StorePiece(t, pieces[octet], SlotAddress(shared, t, fill, piece, octet));
  }
}

template <int kBlocks>
__device__ inline void FillWideSlot(const SparseParams& p, SplitShared& shared, const ThreadKeys& t, const SplitFills<kBlocks>& fills,
                                    int window_tiles, int fill) {
  const PieceAt at[2] = {FindPiece(fills, fill, 0), FindPiece(fills, fill, 1)};
  const bool windows[2] = {at[0].tile < window_tiles, at[1].tile < window_tiles};
  if (windows[0] && windows[1]) {
    FillSlot<true>(p, shared, t, at, fill);
  } else if (windows[0]) {  // window tiles come first
    FillPiece<true>(p, shared, t, at[0], fill, 0);
    FillPiece<false>(p, shared, t, at[1], fill, 1);
  } else {
    FillSlot<false>(p, shared, t, at, fill);
  }
}

// Slots of eight blocks, that hold four tiles with one chunk each: a thread has half of a key's chunk, of latents one unit, of
// window keys two.
struct NarrowPiece {
  uint32_t codes[2][4];
  uint32_t scales;
  bool is_window;
};
__device__ inline void LoadNarrow(const SparseParams& p, const SplitShared& shared, const ThreadKeys& t, int tile, int tiles,
                                  int window_tiles, int rank, int octet, NarrowPiece& piece) {
  const Place place = shared.places[static_cast<uint32_t>(min(tile, tiles - 1) * kTileKeys + octet * 8) + t.first];
  const bool is_there = tile < tiles && place.codes != kNoKey;
  piece.is_window = tile < window_tiles;
  const auto* base = reinterpret_cast<const uint8_t*>(piece.is_window ? p.op.window_cache.base : p.op.latent_cache.base);
  const auto half = static_cast<uint32_t>(rank) * 2 + t.part % 2;  // of the key's sixteen
  const uint8_t* codes = base + size_t{place.codes} * 16 + half * (piece.is_window ? 32 : 16);
  const uint8_t* scales = base + size_t{place.scales} * 16 + (piece.is_window ? half / 4 * 4 : half / 2 * 4);
  ptx::LoadOnceIf(is_there, codes, piece.codes[0]);
  ptx::LoadOnceIf(is_there && piece.is_window, codes + 16, piece.codes[1]);
  ptx::LoadWordOnceIf(is_there, scales, piece.scales);
}
__device__ inline void StoreNarrow(const ThreadKeys& t, const NarrowPiece& piece, int rank, uint32_t to) {
  const auto half = static_cast<uint32_t>(rank) * 2 + t.part % 2;
  to |= (t.part % 2 * 2 ^ t.row) * 16;
  uint32_t scales[2];
  LatentScales(piece.scales >> half % 2 * 16, scales);
  const uint32_t window_scale = WindowScale(piece.scales >> half % 4 * 8 & 0xFF);
#pragma unroll
  for (uint32_t e = 0; e < 2; ++e) {
    uint4 units[2];
    if (piece.is_window) {
      DecodeWindow(piece.codes[e], window_scale, units);
    } else {
      DecodeLatent(piece.codes[0][2 * e], piece.codes[0][2 * e + 1], scales[e], units);
    }
    ptx::StoreShared(to ^ e * 16, units[0]);
    ptx::StoreShared(to ^ (e * 16 + 64), units[1]);
  }
}
__device__ inline void FillNarrowSlot(const SparseParams& p, SplitShared& shared, const ThreadKeys& t, const SplitFills<8>& fills,
                                      int window_tiles, int fill) {
  const int tile = (fill - fills.scored()) * 4 + static_cast<int>(t.part / 2);
  NarrowPiece pieces[4];
#pragma unroll
  for (int i = 0; i < 2; ++i) LoadNarrow(p, shared, t, tile, fills.tiles, window_tiles, fills.rank, i, pieces[i]);
  const uint32_t zero = WaitForSlot(shared, fill);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    pieces[i].scales ^= zero;
    StoreNarrow(t, pieces[i], fills.rank, SlotAddress(shared, t, fill, i / 2, i % 2) + t.part / 2 * kChunkBytes);
    if (i < 2) LoadNarrow(p, shared, t, tile + 2, fills.tiles, window_tiles, fills.rank, i, pieces[i + 2]);
  }
}

enum SplitSignal { kPlacesReady = 1, kQueryWritten = 2, kOwnWeights = 3 };  // named barriers; the last one of each consumer warpgroup

template <int kBlocks>
__device__ inline void ProduceSplit(const SparseParams& p, SplitShared& shared, int64_t row, int rank) {
  const ItemKeys keys = FindPlaces<kBlocks>(p, shared, row, rank);
  ptx::SyncThreads(kPlacesReady, kSplitProducers);
  const int window_tiles = Tiles(keys.window);
  const SplitFills<kBlocks> fills{rank, 2 * Pairs(keys.window, keys.latents)};
  const ThreadKeys thread = FindThreadKeys();
  const int all = fills.all();
#pragma unroll 1
  for (int fill = Producer() / kWarpgroup; fill < all; fill += kSlots) {
    if constexpr (kBlocks == 8) {
      if (fill < fills.scored()) {
        FillWideSlot(p, shared, thread, fills, window_tiles, fill);
      } else {
        FillNarrowSlot(p, shared, thread, fills, window_tiles, fill);
      }
    } else {
      FillWideSlot(p, shared, thread, fills, window_tiles, fill);
    }
    __syncwarp();
    if (Producer() % kWarp == 0) ptx::BarrierArrive(&shared.full[fill % kSlots]);
  }
}

}  // namespace deepinfer::backend::cuda::sparse
