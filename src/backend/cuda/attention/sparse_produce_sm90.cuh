// SPDX-License-Identifier: Apache-2.0
// The producers of sparse attention: eight warps gather keys by index, decode them to bf16 and fill the halves of two tile
// buffers in the order in which the consumers free them; and convert the query of each item.
//
// The fence that makes the tensor cores see what producers write is the consumers': it waits for all memory accesses of
// its thread, and producers have many on their way.
//
// A warp has eight keys of every tile. Keys are found an item ahead (sparse_places_sm90.cuh) and brought into the
// second-level cache a pair ahead. Everything stays in registers: the first-level cache is what shared memory leaves, and a
// spilled value costs as much as a key.
#pragma once

#include "backend/cuda/attention/sparse_decode_sm90.cuh"
#include "backend/cuda/attention/sparse_places_sm90.cuh"

namespace deepinfer::backend::cuda::sparse {

constexpr int kWarpKeys = kTileKeys / (kProducers / kWarp);
constexpr int kProducerBarrier = 6;

// Fills of a pair in order: left of tile 0, right of tile 1, right of tile 0, left of tile 1.
__device__ inline int FillTile(int fill) { return fill & 1; }
__device__ inline int FillHalf(int fill) { return (fill ^ fill >> 1) & 1; }

// Where a lane reads for a fill: its four keys' places, and which 16 channels.
struct Source {
  const int* places;
  uint32_t part;
  bool window;

  __device__ Source(const Places& list, int tile, int half) {
    const uint32_t t = static_cast<uint32_t>(Producer()), lane = t % kWarp;
    part = static_cast<uint32_t>(half) * 16 + lane % 16;
    window = tile < list.window_tiles;
    const int* tiles = window ? list.window + tile * kTileKeys
                              : tile < list.tiles ? list.latents + (tile - list.window_tiles) * kTileKeys : list.none;
    places = tiles + t / kWarp * kWarpKeys + lane / 16;
  }
};

// What a lane holds of half of a tile: 16 channels of four keys, as read. The next fill's are loaded while this one's are
// decoded, key by key.
struct Batch {
  uint32_t codes[4][4];  // of a latent two words
  uint32_t scales[4];
  uint32_t missing;      // bit j: no key
};

// Key 2 j + lane / 16 of the warp's eight. A key that is not there reads the cache's first. Offsets in units of 16 or 8 bytes
// first: caches can be larger than 4 GiB.
template <bool kWindow>
__device__ inline void LoadKey(const SparseParams& p, const Source& source, int j, Batch& batch) {
  const int place = source.places[2 * j];
  batch.missing = (batch.missing & ~(1u << j)) | (static_cast<uint32_t>(place) >> 31 << j);
  const uint32_t at = static_cast<uint32_t>(max(place, 0)), slot = at % kBlockTokens, block = at / kBlockTokens;
  if constexpr (kWindow) {
    const auto* base = reinterpret_cast<const uint8_t*>(p.op.window_cache.base);
    const uint32_t page = block * p.page_units;
    ptx::LoadOnce(base + size_t{page + slot * (kDim / 16) + source.part} * 16, batch.codes[j]);
    batch.scales[j] = ptx::LoadByteOnce(base + (size_t{page + kBlockTokens * kDim / 16 + slot} * 16 + source.part / 2));
  } else {
    const auto* base = reinterpret_cast<const uint8_t*>(p.op.latent_cache.base);
    const uint32_t first = block * p.block_units;
    ptx::LoadTwoOnce(base + size_t{(first + slot * (kDim / 2 / 16)) * 2 + source.part} * 8, batch.codes[j]);
    batch.scales[j] = ptx::LoadByteOnce(base + (size_t{first + p.scale_units + slot * 2} * 16 + source.part));
  }
}

// Brings the warp's latents of the two tiles from `tile` on into the second-level cache.
__device__ inline void PrefetchPair(const SparseParams& p, const Places& places, int tile) {
  const int t = Producer(), lane = t % kWarp;
  tile += lane / kWarpKeys % 2;
  if (tile < places.window_tiles || tile >= places.tiles) return;
  const int place = places.latents[(tile - places.window_tiles) * kTileKeys + t / kWarp * kWarpKeys + lane % kWarpKeys];
  if (place < 0) return;
  const auto* base = reinterpret_cast<const uint8_t*>(p.op.latent_cache.base);
  const uint32_t slot = static_cast<uint32_t>(place) % kBlockTokens, first = static_cast<uint32_t>(place) / kBlockTokens * p.block_units;
  ptx::Prefetch(base + lane / 16 * 128 + size_t{first + slot * (kDim / 2 / 16)} * 16);
  if (lane < 16) ptx::Prefetch(base + size_t{first + p.scale_units + slot * 2} * 16);
}

// Decodes a key into the tile's buffer; `to` is where the lane's unit A of key 0 goes: UnitOffset(key, unit) differs from key to
// key in bits of its own. Units A of a chunk lie before units B, in odd chunks behind them, so that no bank is hit twice.
template <bool kWindow>
__device__ inline void StoreKey(const Batch& batch, int j, uint32_t to) {
  uint4 units[2];
  const bool none = (batch.missing >> j & 1) != 0;
  if constexpr (kWindow) {
    DecodeWindow(batch.codes[j], none ? 0 : WindowScale(batch.scales[j]), units);
  } else {
    DecodeLatent(batch.codes[j][0], batch.codes[j][1], none ? 0 : LatentScale(batch.scales[j]), units);
  }
  const uint32_t at = (to ^ static_cast<uint32_t>(j) * 32) + static_cast<uint32_t>(j) * 256;
  ptx::StoreShared(at, units[0]);
  ptx::StoreShared(at ^ 64, units[1]);
}

// Address of the lane's unit A of its key 0.
__device__ inline uint32_t StoreBegin(const uint8_t* tile, uint32_t part) {
  const uint32_t t = static_cast<uint32_t>(Producer()), sub = t % kWarp / 16, chunk = part / 4, unit = part % 4 + chunk % 2 * 4;
  return ptx::SharedAddress(tile) + chunk * kChunkBytes + t / kWarp * 1024 + sub * 128 + (unit ^ sub) * 16;
}

template <bool kWindow, bool kNextWindow>
__device__ inline void StoreAndLoad(const SparseParams& p, const Source& next, uint32_t to, Batch& batch) {
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    StoreKey<kWindow>(batch, j, to);
    LoadKey<kNextWindow>(p, next, j, batch);
  }
}

// The query of an item as bf16, in the order of the keys' channels. Two neighbouring threads have eight channels: one makes
// half of a unit A, the other of a unit B. A thread has the same channels of every other head.
__device__ inline void FillQuery(const float* q, uint8_t* out) {
  constexpr int kInFlight = 4, kStride = kProducers / (kDim / 4), kRounds = kHeads / kStride / kInFlight;
  const int t = Producer(), first = t / (kDim / 4), four = t % (kDim / 4), odd = t % 2;
  const int part = four / 4, chunk = part / 4, unit = part % 4 + (chunk % 2 ^ odd) * 4;
  q += first * kDim + four * 4;
  out += chunk * kChunkBytes + first * 128 + four % 4 / 2 * 8;
  const auto load = [&](int i) { return *reinterpret_cast<const float4*>(q + i * kStride * kDim); };
  float4 v[kInFlight];
#pragma unroll
  for (int j = 0; j < kInFlight; ++j) v[j] = load(j);
#pragma unroll 1
  for (int round = 0; round < kRounds; ++round) {
#pragma unroll
    for (int j = 0; j < kInFlight; ++j) {
      const float a = __shfl_xor_sync(kAllLanes, odd ? v[j].x : v[j].y, 1), b = __shfl_xor_sync(kAllLanes, odd ? v[j].z : v[j].w, 1);
      const uint2 words = odd ? make_uint2(ptx::PackBf16x2(a, v[j].y), ptx::PackBf16x2(b, v[j].w))
                              : make_uint2(ptx::PackBf16x2(v[j].x, a), ptx::PackBf16x2(v[j].z, b));
      // UnitOffset(first + kStride * (round * kInFlight + j), unit): first is below kStride.
      const int row = j * kStride;
      *reinterpret_cast<uint2*>(out + row / 8 * 1024 + row % 8 * 128 + ((unit ^ first ^ row % 8) * 16)) = words;
      if (round + 1 < kRounds) v[j] = load((round + 1) * kInFlight + j);
    }
    out += kInFlight * kStride / 8 * 1024;
  }
}

// Brings a quarter of an item's query into the second-level cache. A whole one would go beside the outputs of the last item,
// which all blocks store at about the same time.
__device__ inline void PrefetchQuery(const SparseParams& p, int item, int quarter) {
  if (item >= p.num_items || quarter >= 4) return;
  const float* q = p.op.q + (p.RowOf(item) * p.op.heads + p.FirstHead(item) + quarter * (kHeads / 4)) * kDim;
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(q), "r"(kHeads / 4 * kDim * 4) : "memory");
}

// Fills the query once the consumers are done with the last one.
__device__ inline void BeginItem(const SparseParams& p, int item, int count, const Places& places, Shared& shared) {
  const bool leader = threadIdx.x == kConsumers;
  ptx::BarrierWait(&shared.query_empty, (count & 1) ^ 1);
  FillQuery(p.op.q + (p.RowOf(item) * p.op.heads + p.FirstHead(item)) * kDim, shared.query);
  if (leader) {
    const Keys keys = KeysOf(p, places);
    shared.window = keys.window;
    shared.latents = keys.count - keys.window;
  }
  __syncwarp();
  if (threadIdx.x % kWarp == 0) ptx::BarrierArrive(&shared.query_full);
}

// All producers: finds the rest of the item's keys; what was copied for the next is there.
__device__ inline void EndLookUp(const SparseParams& p, LookUp& look_up) {
  while (!look_up.Done()) look_up.Step(p);
  ptx::WaitForCopies();
  ptx::SyncThreads(kProducerBarrier, kProducers);
}

// Fills the two tile buffers with a pair's tiles; `batch` holds what the first fill needs, as `now` says, and in the end both
// speak of the next pair's first.
__device__ inline void FillPair(const SparseParams& p, const Places& places, int first_tile, uint32_t phase, Source& now, Batch& batch,
                                Shared& shared) {
#pragma unroll 1
  for (int fill = 0; fill < 4; ++fill) {
    const int buffer = FillTile(fill), half = FillHalf(fill);
    const Source next(places, first_tile + (fill + 1) / 4 * 2 + FillTile(fill + 1), FillHalf((fill + 1) % 4));
    const uint32_t to = StoreBegin(shared.keys[buffer], now.part);
    ptx::BarrierWait(&shared.empty[buffer][half], phase);
    if (now.window) {
      if (next.window) {
        StoreAndLoad<true, true>(p, next, to, batch);
      } else {
        StoreAndLoad<true, false>(p, next, to, batch);
      }
    } else if (next.window) {
      StoreAndLoad<false, true>(p, next, to, batch);
    } else {
      StoreAndLoad<false, false>(p, next, to, batch);
    }
    now = next;
    __syncwarp();
    if (threadIdx.x % kWarp == 0) ptx::BarrierArrive(&shared.full[buffer][half]);
  }
}

// All producers.
__device__ inline void Produce(const SparseParams& p, Shared& shared) {
  const int step = static_cast<int>(gridDim.x);
  int item = static_cast<int>(blockIdx.x), now = 0;
  CopySelection(p, item, shared.places[0]);
  CopySelection(p, item + step, shared.places[1]);
  for (int i = Producer(); i < kRing * kTileKeys; i += kProducers) {
    shared.places[i / kTileKeys].none[i % kTileKeys] = -1;
  }
  ptx::WaitForCopies();
  ptx::SyncThreads(kProducerBarrier, kProducers);
  LookUp look_up(shared.places[0], true);
  uint32_t phase = 1;  // of the empty barriers: one turn a pair
  for (int count = 0; item < p.num_items; item += step, ++count) {
    EndLookUp(p, look_up);
    const Places& places = shared.places[now];
    now = now + 1 == kRing ? 0 : now + 1;
    look_up = LookUp(shared.places[now], item + step < p.num_items);
    CopySelection(p, item + 2 * step, shared.places[now + 1 == kRing ? 0 : now + 1]);
    PrefetchPair(p, places, 0);
    BeginItem(p, item, count, places, shared);
    Batch batch;
    batch.missing = 0;
    Source source(places, 0, 0);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (source.window) {
        LoadKey<true>(p, source, j, batch);
      } else {
        LoadKey<false>(p, source, j, batch);
      }
    }
    for (int tile = 0; tile < max(places.tiles, 1); tile += 2, phase ^= 1) {
      PrefetchPair(p, places, tile + 2);
      if (threadIdx.x == kConsumers) PrefetchQuery(p, item + step, tile / 2);
      if (!look_up.Done()) look_up.Step(p);
      FillPair(p, places, tile, phase, source, batch, shared);
      if (!look_up.Done()) look_up.Step(p);
    }
  }
}

}  // namespace deepinfer::backend::cuda::sparse
