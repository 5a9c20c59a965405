// SPDX-License-Identifier: Apache-2.0
// The producers of sparse attention: eight warps gather keys by index, decode them to bf16 and fill the halves of two tile
// buffers in the order in which the consumers free them, pair after pair and item after item.
//
// A warp has eight keys of every tile (found ahead: sparse_places_sm90.cuh), a lane a quarter of a key's channels in a step: a
// step is half of a tile of latents, or a quarter of a tile of window keys. Two steps are on their way: the even ones into
// registers, the odd ones into shared memory. All loops stay in registers: the first-level cache is what shared memory leaves, and a
// spilled value costs as much as a key.
//
// The fence that makes the tensor cores see what producers write is the consumers': it waits for all memory accesses of
// its thread, and producers have many on their way.
#pragma once

#include "backend/cuda/attention/sparse_decode_sm90.cuh"
#include "backend/cuda/attention/sparse_places_sm90.cuh"
#include "backend/cuda/attention/sparse_query_sm90.cuh"

namespace deepinfer::backend::cuda::sparse {

// Fills of a pair in order: left of tile 0, right of tile 1, right of tile 0, left of tile 1.
__device__ inline int FillTile(int fill) { return fill & 1; }
__device__ inline int FillHalf(int fill) { return (fill ^ fill >> 1) & 1; }

// What a lane needs of a step, as read: 16-byte units 4 i + lane / 8 of the key's run of 128 bytes, and the words its scales lie
// in. All zeros: no key.
struct Batch {
  uint32_t codes[2][4];
  uint32_t scales[2];
};

__device__ inline uint32_t Row() { return static_cast<uint32_t>(Producer()) % kWarpKeys; }
__device__ inline uint32_t Part() { return static_cast<uint32_t>(Producer()) % kWarp / kWarpKeys; }

// Where a lane finds a step: of latents the given half, of window keys the given quarter.
struct Source {
  const uint8_t* codes;   // the second unit 64 bytes further on
  const uint8_t* scales;  // of latents the second word 8 bytes further on
  bool is_there;
};
__device__ inline Source LatentSource(const SparseParams& p, const Place& place, uint32_t half) {
  const auto* base = reinterpret_cast<const uint8_t*>(p.op.latent_cache.base);
  return {base + size_t{place.codes} * 16 + Part() * 16 + half * 128, base + size_t{place.scales} * 16 + Part() / 2 * 4 + half * 16,
          place.codes != kNoKey};
}
__device__ inline Source WindowSource(const SparseParams& p, const Place& place, uint32_t quarter) {
  const auto* base = reinterpret_cast<const uint8_t*>(p.op.window_cache.base);
  return {base + size_t{place.codes} * 16 + Part() * 16 + quarter * 128, base + size_t{place.scales} * 16 + quarter * 4,
          place.codes != kNoKey};
}

__device__ inline Source SourceOf(const SparseParams& p, const Place& place, bool is_window, uint32_t part) {
  return is_window ? WindowSource(p, place, part) : LatentSource(p, place, part);
}

// Half of the steps come through registers, ... Not to be called under a branch: where it joins, ptxas waits for the loads.
__device__ inline void Load(const Source& source, bool is_window, Batch& batch) {
#pragma unroll
  for (int i = 0; i < 8; ++i) batch.codes[i / 4][i % 4] = 0;
  batch.scales[0] = batch.scales[1] = 0;
  if (source.is_there) {
    ptx::LoadOnce(source.codes, batch.codes[0]);
    ptx::LoadOnce(source.codes + 64, batch.codes[1]);
    batch.scales[0] = ptx::LoadWordOnce(source.scales);
  }
  if (source.is_there && !is_window) batch.scales[1] = ptx::LoadWordOnce(source.scales + 8);
}

// A lane's unit in the stage. A key's four lie together, or each line of what is copied would be written for itself; those of codes
// are exchanged so that eight keys' are read without conflicts.
__device__ inline uint32_t StageUnit(uint32_t unit) { return (static_cast<uint32_t>(Producer()) & ~31u) + Row() * 4 + unit; }

// ... the others through the thread's part of shared memory: the compiler waits for all loads into registers at once.
__device__ inline void Copy(const Source& source, bool is_window, Stage& stage) {
  const uint32_t codes = StageUnit(Part() ^ Row() / 2), scales = StageUnit(Part());
  const int bytes = source.is_there ? 16 : 0;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    ptx::CopyUnit(stage.codes[i][codes], source.codes + i * 64, bytes);
    if (i == 0 || !is_window) ptx::CopyWord(&stage.scales[i][scales], source.scales + i * 8, bytes / 4);
  }
}
__device__ inline void ReadStage(const Stage& stage, Batch& batch) {
  const uint32_t codes = StageUnit(Part() ^ Row() / 2), scales = StageUnit(Part());
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    ptx::LoadShared(stage.codes[i][codes], batch.codes[i]);
    batch.scales[i] = stage.scales[i][scales];
  }
}

// Decodes a step into its tile's buffer. Sixteen channels are two units, A and B: in the chunk of 64 channels units A come
// before units B, in odd chunks behind them. Eight lanes write one unit of eight keys: no bank is hit twice.
__device__ inline uint32_t KeyAddress(const uint8_t* keys) {
  return ptx::SharedAddress(keys) + static_cast<uint32_t>(Producer()) / kWarp * 1024 + Row() * 128;
}
__device__ inline void StoreLatents(const Batch& batch, uint8_t* half_tile) {
  const uint32_t part = Part(), to = (KeyAddress(half_tile) + part / 2 * kChunkBytes) | (((part % 2 * 2 + part / 2 * 4) ^ Row()) * 16);
  uint4 units[2];
#pragma unroll
  for (uint32_t i = 0; i < 2; ++i) {
    uint32_t scales[2];
    LatentScales(batch.scales[i] >> part % 2 * 16, scales);
#pragma unroll
    for (uint32_t e = 0; e < 2; ++e) {
      DecodeLatent(batch.codes[i][2 * e], batch.codes[i][2 * e + 1], scales[e], units);
      ptx::StoreShared((to ^ e * 16) + i * 2 * kChunkBytes, units[0]);
      ptx::StoreShared((to ^ (e * 16 + 64)) + i * 2 * kChunkBytes, units[1]);
    }
  }
}
__device__ inline void StoreWindow(const Batch& batch, uint8_t* quarter_tile) {
  const uint32_t part = Part(), to = KeyAddress(quarter_tile) | ((part ^ Row()) * 16);
  uint4 units[2];
#pragma unroll
  for (uint32_t i = 0; i < 2; ++i) {
    DecodeWindow(batch.codes[i], WindowScale(batch.scales[0] >> (part / 2 * 8 + i * 16) & 0xFF), units);
    ptx::StoreShared((to ^ i * 64) + i * kChunkBytes, units[0]);
    ptx::StoreShared((to ^ (1 - i) * 64) + i * kChunkBytes, units[1]);
  }
}

// What all steps of a warp need.
struct Filling {
  const SparseParams& p;
  LookAhead& ahead;
  Shared& shared;
  Batch batch;  // the even step that comes next; the odd one is in shared.stage
  int pair;

  __device__ uint8_t* Half(int tile, int half) const { return shared.keys[tile] + half * (kChunks / 2) * kChunkBytes; }
  // The empty barriers have one turn a pair.
  __device__ void Wait(int tile, int half, Batch& batch) const {
    // Without it ptxas begins to decode, and waits for the loads, before the arrival of the step before.
    const uint32_t zero = ptx::BarrierWaitZero(&shared.empty[tile][half], static_cast<uint32_t>(~pair) & 1);
    batch.scales[0] ^= zero;
    batch.scales[1] ^= zero;
  }
  __device__ void Arrive(int tile, int half) const { ArriveOfWarp(&shared.full[tile][half]); }
  // Takes the step out of the stage, which is free then. kPending: groups of copies begun since.
  template <int kPending>
  __device__ Batch Staged() const {
    ptx::WaitForCopyGroups<kPending>();
    Batch staged;
    ReadStage(shared.stage, staged);
    __syncwarp();
    return staged;
  }
};

// The place of the lane's key of a tile of the next pair, if that is of the same item.
__device__ inline Place NextPlace(const Filling& f, int tile) {
  Place place = f.ahead.PlaceOf(f.pair + 1, tile);
  if ((f.ahead.Flags(f.pair + 1) & (kFirst | kEnd)) != 0) place.codes = kNoKey;
  return place;
}

// A pair of tiles of latents: four steps. What a step decodes is in registers before the stores of the step before, behind which
// everything that reads shared memory has to wait. In the end the first two steps of the item's next pair are on their way.
__device__ inline void FillLatents(Filling& f) {
  const Place first = f.ahead.PlaceOf(f.pair, 0), second = f.ahead.PlaceOf(f.pair, 1);
  Batch staged = f.Staged<0>();
  Copy(LatentSource(f.p, second, kLeft), false, f.shared.stage);
  ptx::EndCopyGroup();
  f.Wait(0, kLeft, f.batch);
  Batch third;
  Load(LatentSource(f.p, first, kRight), false, third);
  StoreLatents(f.batch, f.Half(0, kLeft));
  f.Arrive(0, kLeft);
  f.Wait(1, kRight, staged);
  StoreLatents(staged, f.Half(1, kRight));
  f.Arrive(1, kRight);
  f.ahead.Advance<1>(f.p, f.pair);
  Batch last = f.Staged<1>();
  Copy(LatentSource(f.p, NextPlace(f, 1), kRight), false, f.shared.stage);
  ptx::EndCopyGroup();
  f.Wait(0, kRight, third);
  StoreLatents(third, f.Half(0, kRight));
  f.Arrive(0, kRight);
  Load(LatentSource(f.p, NextPlace(f, 0), kLeft), false, f.batch);
  f.Wait(1, kLeft, last);
  StoreLatents(last, f.Half(1, kLeft));
  f.Arrive(1, kLeft);
}

// A pair of tiles of window keys, or one of them and one of latents: a half of a tile of window keys is two steps, of which the
// second comes through the stage; latents come through registers.
__device__ inline void FillWindows(Filling& f) {
  const int pair = f.pair;
  f.ahead.Advance<1>(f.p, pair);
#pragma unroll 1
  for (int fill = 0; fill < 4; ++fill) {
    const int tile = FillTile(fill), half = FillHalf(fill), flags = f.ahead.Flags(pair);
    const bool is_window = (flags >> tile & kFirstIsWindow) != 0;
    // Of the next half; behind the last one the next pair's begin.
    const bool is_last = fill == 3;
    const Place next = is_last ? NextPlace(f, 0) : f.ahead.PlaceOf(pair, FillTile(fill + 1));
    const bool next_is_window = ((is_last ? f.ahead.Flags(pair + 1) : flags >> FillTile(fill + 1)) & kFirstIsWindow) != 0;
    const auto next_half = static_cast<uint32_t>(is_last ? 0 : FillHalf(fill + 1));
    Batch second = f.Staged<1>();
    if (next_is_window) {
      Copy(WindowSource(f.p, next, next_half * 2 + 1), true, f.shared.stage);
    } else if (is_last) {
      Copy(LatentSource(f.p, NextPlace(f, 1), kRight), false, f.shared.stage);
    }
    ptx::EndCopyGroup();
    if (!is_last) ptx::EndCopyGroup();
    f.Wait(tile, half, f.batch);
    if (is_window) {
      StoreWindow(f.batch, f.Half(tile, half));
    } else {
      StoreLatents(f.batch, f.Half(tile, half));
    }
    Load(SourceOf(f.p, next, next_is_window, next_is_window ? next_half * 2 : next_half), next_is_window, f.batch);
    if (is_window) StoreWindow(second, f.Half(tile, half) + 2 * kChunkBytes);
    f.Arrive(tile, half);
  }
}

// What the consumers need of an item besides its keys: a load of their own would wait behind all their stores. The first two steps
// are on their way then.
__device__ inline void BeginItem(Filling& f) {
  const int item = f.ahead.Item(f.pair), first_head = f.p.FirstHead(item);
  const auto turn = static_cast<uint32_t>(f.ahead.NumberOfItem(f.pair)) & 1;
  const int64_t row = f.p.RowOf(item);
  const int t = Producer();
  const float* from = nullptr;
  if (t < kHeads) from = f.p.op.sink + first_head + t;
  const int turned = t - kHeads - (kTurnedMax - static_cast<int>(f.p.op.rope_dim));
  if (t >= kHeads && t < kHeads + kTurnedMax && turned >= 0) from = f.p.op.table + row * f.p.op.rope_dim + turned;
  const bool is_window = (f.ahead.Flags(f.pair) & kFirstIsWindow) != 0;
  const Place place = f.ahead.PlaceOf(f.pair, 0);
  ptx::WaitForCopyGroups<0>();
  if (is_window) {
    Copy(WindowSource(f.p, place, 1), true, f.shared.stage);
  } else {
    Copy(LatentSource(f.p, f.ahead.PlaceOf(f.pair, 1), kRight), false, f.shared.stage);
  }
  ptx::EndCopyGroup();
  const float value = from != nullptr ? *from : 1.0f - static_cast<float>(t % 2);
  if (f.pair > 0) {
    FillQuery<8>(t, f.p.op.q + (row * f.p.op.heads + first_head) * kDim, f.shared.query, &f.shared.query_empty, turn ^ 1);
  }
  if (t < kHeads) f.shared.sinks[turn][t] = value * kLog2E;
  if (t >= kHeads && t < kHeads + kTurnedMax) f.shared.turns[turn][t - kHeads] = value;
  if (t == 0) f.shared.counts = f.ahead.CountsOf(f.p, f.pair);
  ArriveOfWarp(&f.shared.query_full);
  Load(SourceOf(f.p, place, is_window, 0), is_window, f.batch);
}

// All producers.
__device__ inline void Produce(const SparseParams& p, Shared& shared) {
  LookAhead ahead(p, shared);
  for (int i = -3; i < 0; ++i) ahead.Advance<0>(p, i);
  Filling f{p, ahead, shared, {}, 0};
  for (;; ++f.pair) {
    const int flags = ahead.Flags(f.pair);
    if ((flags & kEnd) != 0) return;
    if ((flags & kFirst) != 0) BeginItem(f);
    if (Producer() % (kProducers / 4) == 0) PrefetchQuery(p, ahead.Item(f.pair), ahead.PairOfItem(f.pair), Producer() / (kProducers / 4));
    if ((flags & kFirstIsWindow) != 0) {
      FillWindows(f);
    } else {
      FillLatents(f);
    }
  }
}

}  // namespace deepinfer::backend::cuda::sparse
