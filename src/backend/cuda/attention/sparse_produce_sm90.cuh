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

// Half of the steps come through registers, ...
template <bool kWindow>
__device__ inline void Load(const Source& source, Batch& batch) {
#pragma unroll
  for (int i = 0; i < 8; ++i) batch.codes[i / 4][i % 4] = 0;
  batch.scales[0] = batch.scales[1] = 0;
  if (!source.is_there) return;
  ptx::LoadOnce(source.codes, batch.codes[0]);
  ptx::LoadOnce(source.codes + 64, batch.codes[1]);
  batch.scales[0] = ptx::LoadWordOnce(source.scales);
  if (!kWindow) batch.scales[1] = ptx::LoadWordOnce(source.scales + 8);
}

// A lane's unit in the stage. A key's four lie together, or each line of what is copied would be written for itself; those of codes
// are exchanged so that eight keys' are read without conflicts.
__device__ inline uint32_t StageUnit(uint32_t unit) { return (static_cast<uint32_t>(Producer()) & ~31u) + Row() * 4 + unit; }

// ... the others through the thread's part of shared memory: the compiler waits for all loads into registers at once.
template <bool kWindow>
__device__ inline void Copy(const Source& source, Stage& stage) {
  const uint32_t codes = StageUnit(Part() ^ Row() / 2), scales = StageUnit(Part());
  const int bytes = source.is_there ? 16 : 0;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    ptx::CopyUnit(stage.codes[i][codes], source.codes + i * 64, bytes);
    if (!kWindow || i == 0) ptx::CopyWord(&stage.scales[i][scales], source.scales + i * 8, bytes / 4);
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

// Brings a quarter of an item's query into the second-level cache. A whole one would go beside the outputs of the last item,
// which all blocks store at about the same time.
__device__ inline void PrefetchQuery(const SparseParams& p, int item, int quarter) {
  if (item >= p.num_items || quarter >= 4) return;
  const float* q = p.op.q + (p.RowOf(item) * p.op.heads + p.FirstHead(item) + quarter * (kHeads / 4)) * kDim;
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(q), "r"(kHeads / 4 * kDim * 4) : "memory");
}

__device__ inline void ArriveOfWarp(uint64_t* barrier) {
  __syncwarp();
  if (threadIdx.x % kWarp == 0) ptx::BarrierArrive(barrier);
}

// What all steps of a warp need.
struct Filling {
  const SparseParams& p;
  const LookAhead& ahead;
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
  // The step in the stage: the last group of copies is of look-ups, or empty.
  __device__ Batch Staged() const {
    ptx::WaitForCopyGroups<1>();
    Batch staged;
    ReadStage(shared.stage, staged);
    return staged;
  }
};

// The first two steps of a pair; where there is none any more, of no keys.
__device__ inline void BeginPair(Filling& f, int pair) {
  const Place first = f.ahead.PlaceOf(pair, 0);
  if ((f.ahead.Flags(pair) & kFirstIsWindow) != 0) {
    Load<true>(WindowSource(f.p, first, 0), f.batch);
    Copy<true>(WindowSource(f.p, first, 1), f.shared.stage);
  } else {
    Load<false>(LatentSource(f.p, first, kLeft), f.batch);
    Copy<false>(LatentSource(f.p, f.ahead.PlaceOf(pair, 1), kRight), f.shared.stage);
  }
  ptx::EndCopyGroup();
}

// A pair of tiles of latents: four steps; in the end the next pair's first two are on their way.
__device__ inline void FillLatents(Filling& f) {
  const int pair = f.pair;
  const Place first = f.ahead.PlaceOf(pair, 0), second = f.ahead.PlaceOf(pair, 1);
  f.Wait(0, kLeft, f.batch);
  StoreLatents(f.batch, f.Half(0, kLeft));
  f.Arrive(0, kLeft);
  Batch right;
  Load<false>(LatentSource(f.p, first, kRight), right);
  {
    Batch staged = f.Staged();
    f.Wait(1, kRight, staged);
    StoreLatents(staged, f.Half(1, kRight));
    f.Arrive(1, kRight);
    Copy<false>(LatentSource(f.p, second, kLeft), f.shared.stage);
    ptx::EndCopyGroup();
  }
  f.Wait(0, kRight, right);
  StoreLatents(right, f.Half(0, kRight));
  f.Arrive(0, kRight);
  const bool next_is_window = (f.ahead.Flags(pair + 1) & kFirstIsWindow) != 0;
  const Place next = f.ahead.PlaceOf(pair + 1, 0);
  if (next_is_window) {
    Load<true>(WindowSource(f.p, next, 0), f.batch);
  } else {
    Load<false>(LatentSource(f.p, next, kLeft), f.batch);
  }
  ptx::EndCopyGroup();
  Batch staged = f.Staged();
  f.Wait(1, kLeft, staged);
  StoreLatents(staged, f.Half(1, kLeft));
  f.Arrive(1, kLeft);
  if (next_is_window) {
    Copy<true>(WindowSource(f.p, next, 1), f.shared.stage);
  } else {
    Copy<false>(LatentSource(f.p, f.ahead.PlaceOf(pair + 1, 1), kRight), f.shared.stage);
  }
  ptx::EndCopyGroup();
}

// A pair of tiles of window keys, or one of them and one of latents: a half of a tile of window keys is two steps, of which the
// second comes through the stage; latents come through registers.
__device__ inline void FillWindows(Filling& f) {
  const int pair = f.pair;
#pragma unroll 1
  for (int half = 0; half < 2; ++half) {
    // Left of the first and right of the second, then right and left.
    f.Wait(0, half, f.batch);
    StoreWindow(f.batch, f.Half(0, half));
    StoreWindow(f.Staged(), f.Half(0, half) + 2 * kChunkBytes);
    f.Arrive(0, half);
    const uint32_t other = static_cast<uint32_t>(1 - half);
    const Place second = f.ahead.PlaceOf(pair, 1);
    const bool is_window = (f.ahead.Flags(pair) & kSecondIsWindow) != 0;
    if (is_window) {
      Load<true>(WindowSource(f.p, second, other * 2), f.batch);
      Copy<true>(WindowSource(f.p, second, other * 2 + 1), f.shared.stage);
    } else {
      Load<false>(LatentSource(f.p, second, other), f.batch);
    }
    ptx::EndCopyGroup();
    ptx::EndCopyGroup();
    f.Wait(1, static_cast<int>(other), f.batch);
    if (is_window) {
      StoreWindow(f.batch, f.Half(1, static_cast<int>(other)));
      StoreWindow(f.Staged(), f.Half(1, static_cast<int>(other)) + 2 * kChunkBytes);
    } else {
      StoreLatents(f.batch, f.Half(1, static_cast<int>(other)));
    }
    f.Arrive(1, static_cast<int>(other));
    if (half == 0) {
      const Place first = f.ahead.PlaceOf(pair, 0);
      Load<true>(WindowSource(f.p, first, 2), f.batch);
      Copy<true>(WindowSource(f.p, first, 3), f.shared.stage);
      ptx::EndCopyGroup();
      ptx::EndCopyGroup();
    } else {
      BeginPair(f, pair + 1);
    }
  }
}

// All producers.
__device__ inline void Produce(const SparseParams& p, Shared& shared) {
  LookAhead ahead(p, shared);
  for (int i = -3; i < 0; ++i) ahead.Advance<0>(p, i);
  Filling f{p, ahead, shared, {}, 0};
  BeginPair(f, 0);
  for (; (ahead.Flags(f.pair) & kEnd) == 0; ++f.pair) {
    ahead.Advance<1>(p, f.pair);
    if (Producer() == 0) PrefetchQuery(p, ahead.Item(f.pair) + static_cast<int>(gridDim.x), ahead.PairOfItem(f.pair));
    if ((ahead.Flags(f.pair) & kFirstIsWindow) != 0) {
      FillWindows(f);
    } else {
      FillLatents(f);
    }
  }
}

}  // namespace deepinfer::backend::cuda::sparse
