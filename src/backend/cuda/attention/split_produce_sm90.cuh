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

__device__ inline int KeyOf(int octet) { return Producer() % kWarpgroup / kWarp * 16 + octet * 8 + Producer() % 8; }
__device__ inline int KeyPart() { return Producer() % kWarp / 8; }

// Without branches: loads under one are waited for where it joins.
template <bool kWindow>
__device__ inline void LoadPiece(const SparseParams& p, const SplitShared& shared, const PieceAt& at, int octet, Piece<kWindow>& piece) {
  const Place place = shared.places[at.tile * kTileKeys + KeyOf(octet)];
  const bool is_there = place.codes != kNoKey;
  const auto* base = reinterpret_cast<const uint8_t*>(kWindow ? p.op.window_cache.base : p.op.latent_cache.base);
  const uint8_t* codes = base + size_t{place.codes} * 16 + at.chunk * (kWindow ? 64 : 32) + KeyPart() * 16;
  const uint8_t* scales = base + size_t{place.scales} * 16 + (kWindow ? at.chunk * 2 : at.chunk * 4 + KeyPart() / 2 * 4);
  ptx::LoadOnceIf(is_there, codes, piece.codes[0]);
  if constexpr (kWindow) ptx::LoadOnceIf(is_there, codes + 64, piece.codes[1]);
  ptx::LoadWordOnceIf(is_there, scales, piece.scales);
}

// As StoreLatents and StoreWindow (sparse_produce_sm90.cuh); `to` is the key's row in the piece's first chunk.
__device__ inline void StorePiece(const Piece<false>& piece, uint32_t to) {
  const auto part = static_cast<uint32_t>(KeyPart()), row = static_cast<uint32_t>(Producer()) % 8;
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
__device__ inline void StorePiece(const Piece<true>& piece, uint32_t to) {
  const auto part = static_cast<uint32_t>(KeyPart()), row = static_cast<uint32_t>(Producer()) % 8;
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
__device__ inline uint32_t SlotAddress(SplitShared& shared, int fill, int piece, int octet) {
  return ptx::SharedAddress(shared.slots[fill % kSlots]) + static_cast<uint32_t>(piece * 2 * kChunkBytes + KeyOf(octet) * 128);
}

// A piece of all of the warp's keys.
template <bool kWindow>
__device__ inline void FillPiece(const SparseParams& p, SplitShared& shared, const PieceAt& at, int fill, int piece) {
  Piece<kWindow> pieces[2];
#pragma unroll
  for (int octet = 0; octet < 2; ++octet) LoadPiece(p, shared, at, octet, pieces[octet]);
  const uint32_t zero = WaitForSlot(shared, fill);
#pragma unroll
  for (int octet = 0; octet < 2; ++octet) {
    pieces[octet].scales ^= zero;
    StorePiece(pieces[octet], SlotAddress(shared, fill, piece, octet));
  }
}

// Both pieces of a slot of latents: all loads are on their way at once.
__device__ inline void FillLatentSlot(const SparseParams& p, SplitShared& shared, const PieceAt (&at)[2], int fill) {
  Piece<false> pieces[2][2];
#pragma unroll
  for (int i = 0; i < 4; ++i) LoadPiece(p, shared, at[i % 2], i / 2, pieces[i % 2][i / 2]);
  const uint32_t zero = WaitForSlot(shared, fill);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    pieces[i % 2][i / 2].scales ^= zero;
    StorePiece(pieces[i % 2][i / 2], SlotAddress(shared, fill, i % 2, i / 2));
  }
}

enum SplitSignal { kPlacesReady = 1, kQueryWritten = 2, kOwnWeights = 3 };  // named barriers; the last one of each consumer warpgroup

template <int kBlocks>
__device__ inline void ProduceSplit(const SparseParams& p, SplitShared& shared, int64_t row, int rank) {
  const ItemKeys keys = FindPlaces<kBlocks>(p, shared, row, rank);
  ptx::SyncThreads(kPlacesReady, kSplitProducers);
  const int window_tiles = Tiles(keys.window);
  const SplitFills<kBlocks> fills{rank, 2 * Pairs(keys.window, keys.latents)};
  const int all = fills.all();
#pragma unroll 1
  for (int fill = Producer() / kWarpgroup; fill < all; fill += kSlots) {
    const PieceAt at[2] = {FindPiece(fills, fill, 0), FindPiece(fills, fill, 1)};
    if (at[0].tile >= window_tiles && at[1].tile >= window_tiles) {
      FillLatentSlot(p, shared, at, fill);
    } else {
#pragma unroll 1
      for (int piece = 0; piece < 2; ++piece) {
        const PieceAt here = piece == 0 ? at[0] : at[1];
        if (here.tile >= window_tiles) {
          FillPiece<false>(p, shared, here, fill, piece);
        } else {
          FillPiece<true>(p, shared, here, fill, piece);
        }
      }
    }
    __syncwarp();
    if (Producer() % kWarp == 0) ptx::BarrierArrive(&shared.full[fill % kSlots]);
  }
}

}  // namespace deepinfer::backend::cuda::sparse
