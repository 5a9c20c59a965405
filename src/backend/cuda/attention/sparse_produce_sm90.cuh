// SPDX-License-Identifier: Apache-2.0
// The producers of sparse attention: eight warps gather keys by index, decode them to bf16 and fill the halves of two tile
// buffers in the order in which the consumers free them; and convert the query of each item.
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

// A step in a word: which fill of its pair, for window keys which half of it, and of what it is.
constexpr int kSub = 4, kWindow = 8;
__device__ inline int FillOf(int step) { return step & 3; }
__device__ inline bool Begins(int step) { return (step & kSub) == 0; }
__device__ inline bool Ends(int step) { return (step & (kSub | kWindow)) != kWindow; }

// Where a lane finds a step.
struct Source {
  const uint8_t* codes;   // the second unit 64 bytes further on
  const uint8_t* scales;  // of latents the second word 8 bytes further on
  bool is_there;
  bool is_window;

  __device__ Source(const SparseParams& p, const LookAhead& ahead, int pair, int step) : is_window((step & kWindow) != 0) {
    const int place = ahead.Place(pair, FillTile(step));
    is_there = place >= 0;
    // Offsets in units of 16 bytes first: caches can be larger than 4 GiB.
    const uint32_t part = static_cast<uint32_t>(Producer()) % kWarp / kWarpKeys, half = static_cast<uint32_t>(FillHalf(FillOf(step)));
    const uint32_t at = static_cast<uint32_t>(max(place, 0)), slot = at % kBlockTokens, number = at / kBlockTokens;
    if (is_window) {
      const auto* base = reinterpret_cast<const uint8_t*>(p.op.window_cache.base);
      const uint32_t page = number * p.page_units, run = half * 2 + static_cast<uint32_t>(step & kSub) / kSub;
      codes = base + size_t{page + slot * (kDim / 16) + run * 8 + part} * 16;
      scales = base + (size_t{page + kBlockTokens * kDim / 16 + slot} * 16 + run * 4);
    } else {
      const auto* base = reinterpret_cast<const uint8_t*>(p.op.latent_cache.base);
      const uint32_t block = number * p.block_units;
      codes = base + size_t{block + slot * (kDim / 2 / 16) + half * 8 + part} * 16;
      scales = base + (size_t{block + p.scale_units + slot * 2 + half} * 16 + part / 2 * 4);
    }
  }
};

// Half of the steps come through registers, ...
__device__ inline void Load(const Source& source, Batch& batch) {
#pragma unroll
  for (int i = 0; i < 8; ++i) batch.codes[i / 4][i % 4] = 0;
  batch.scales[0] = batch.scales[1] = 0;
  if (!source.is_there) return;
  ptx::LoadOnce(source.codes, batch.codes[0]);
  ptx::LoadOnce(source.codes + 64, batch.codes[1]);
  batch.scales[0] = ptx::LoadWordOnce(source.scales);
  if (!source.is_window) batch.scales[1] = ptx::LoadWordOnce(source.scales + 8);
}

// ... the others through the thread's part of shared memory: the compiler waits for all loads into registers at once.
__device__ inline void Copy(const Source& source, Stage& stage) {
  const int t = Producer();
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    ptx::CopyUnit(stage.codes[i][t], source.codes + i * 64, source.is_there ? 16 : 0);
    ptx::CopyWord(&stage.scales[i][t], source.scales + (source.is_window ? 0 : i * 8), source.is_there ? 4 : 0);
  }
}
__device__ inline void ReadStage(const Stage& stage, Batch& batch) {
  const int t = Producer();
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    ptx::LoadShared(stage.codes[i][t], batch.codes[i]);
    batch.scales[i] = stage.scales[i][t];
  }
}

// Decodes a step into its tile's buffer. Sixteen channels are two units, A and B: in the chunk of 64 channels units A come
// before units B, in odd chunks behind them. Eight lanes write one unit of eight keys: no bank is hit twice.
__device__ inline void Store(const Batch& batch, int step, uint8_t* keys) {
  const uint32_t t = static_cast<uint32_t>(Producer()), row = t % kWarpKeys, part = t % kWarp / kWarpKeys;
  const uint32_t half = static_cast<uint32_t>(FillHalf(FillOf(step)));
  const uint32_t key = ptx::SharedAddress(keys) + half * (kChunks / 2) * kChunkBytes + t / kWarp * 1024 + row * 128;
  uint4 units[2];
  if ((step & kWindow) != 0) {
    const uint32_t to = (key + static_cast<uint32_t>(step & kSub) / kSub * 2 * kChunkBytes) | ((part ^ row) * 16);
#pragma unroll
    for (uint32_t i = 0; i < 2; ++i) {
      DecodeWindow(batch.codes[i], WindowScale(batch.scales[0] >> (part / 2 * 8 + i * 16) & 0xFF), units);
      ptx::StoreShared((to ^ i * 64) + i * kChunkBytes, units[0]);
      ptx::StoreShared((to ^ (1 - i) * 64) + i * kChunkBytes, units[1]);
    }
  } else {
    const uint32_t to = (key + part / 2 * kChunkBytes) | (((part % 2 * 2 + part / 2 * 4) ^ row) * 16);
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
}

// The query of an item as bf16, in the order of the keys' channels, by 256 threads. Two neighbouring threads have eight
// channels: one makes half of a unit A, the other of a unit B. A thread has the same channels of every other head. `wait` is for
// the last query's end: the first loads do not wait for it.
template <int kInFlight, typename Wait>
__device__ inline void FillQuery(const float* q, uint8_t* out, int t, Wait&& wait) {
  constexpr int kStride = 256 / (kDim / 4), kRounds = kHeads / kStride / kInFlight;
  const int first = t / (kDim / 4), four = t % (kDim / 4), odd = t % 2;
  const int part = four / 4, chunk = part / 4, unit = part % 4 + (chunk % 2 ^ odd) * 4;
  q += first * kDim + four * 4;
  out += chunk * kChunkBytes + first * 128 + four % 4 / 2 * 8;
  const auto load = [&](int i) { return ptx::LoadStreamed(q + i * kStride * kDim); };
  float4 v[kInFlight];
#pragma unroll
  for (int j = 0; j < kInFlight; ++j) v[j] = load(j);
  wait();
#pragma unroll 1
  for (int round = 0; round < kRounds; ++round) {
    q += kInFlight * kStride * kDim;
#pragma unroll
    for (int j = 0; j < kInFlight; ++j) {
      const float a = __shfl_xor_sync(kAllLanes, odd ? v[j].x : v[j].y, 1), b = __shfl_xor_sync(kAllLanes, odd ? v[j].z : v[j].w, 1);
      const uint2 words = odd ? make_uint2(ptx::PackBf16x2(a, v[j].y), ptx::PackBf16x2(b, v[j].w))
                              : make_uint2(ptx::PackBf16x2(v[j].x, a), ptx::PackBf16x2(v[j].z, b));
      // UnitOffset(first + kStride * (round * kInFlight + j), unit): first is below kStride.
      const int row = j * kStride;
      *reinterpret_cast<uint2*>(out + row / 8 * 1024 + row % 8 * 128 + ((unit ^ first ^ row % 8) * 16)) = words;
      if (round + 1 < kRounds) v[j] = load(j);
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

__device__ inline const float* QueryOf(const SparseParams& p, int item) {
  return p.op.q + (p.RowOf(item) * p.op.heads + p.FirstHead(item)) * kDim;
}

__device__ inline void ArriveOfWarp(uint64_t* barrier) {
  __syncwarp();
  if (threadIdx.x % kWarp == 0) ptx::BarrierArrive(barrier);
}

// An item's steps in their order.
class Steps {
 public:
  __device__ Steps(const LookAhead& ahead, int pair) : pair_(pair), flags_(ahead.Flags(pair)) { Enter(); }

  __device__ int pair() const { return pair_; }
  __device__ int step() const { return step_; }  // negative: none is left

  __device__ void Next(const LookAhead& ahead) {
    if (!Ends(step_)) {
      step_ += kSub;
      return;
    }
    step_ = FillOf(step_) + 1;
    if (step_ == 4) {
      step_ = 0;
      flags_ = ahead.Flags(++pair_);
      if ((flags_ & (kFirst | kEnd)) != 0) {
        step_ = -1;
        return;
      }
    }
    Enter();
  }

 private:
  __device__ void Enter() { step_ |= (flags_ >> FillTile(step_) & 1) * kWindow; }

  int pair_;
  int flags_;
  int step_ = 0;
};

// Decodes a step from the registers or the stage, and has the one after the next brought to the same place.
template <bool kStaged>
__device__ inline void RunStep(const SparseParams& p, const LookAhead& ahead, uint32_t phase, Steps& now, Steps& later, Batch& batch,
                               Shared& shared) {
  const int step = now.step(), tile = FillTile(FillOf(step)), half = FillHalf(FillOf(step));
  if constexpr (kStaged) {
    // The last group of copies is of look-ups, or empty.
    ptx::WaitForCopyGroups<1>();
    Batch staged;
    ReadStage(shared.stage, staged);
    if (Begins(step)) ptx::BarrierWait(&shared.empty[tile][half], phase);
    Store(staged, step, shared.keys[tile]);
  } else {
    if (Begins(step)) ptx::BarrierWait(&shared.empty[tile][half], phase);
    Store(batch, step, shared.keys[tile]);
  }
  if (Ends(step)) ArriveOfWarp(&shared.full[tile][half]);
  now.Next(ahead);
  if (later.step() >= 0) {
    const Source source(p, ahead, later.pair(), later.step());
    if constexpr (kStaged) {
      Copy(source, shared.stage);
    } else {
      Load(source, batch);
    }
    later.Next(ahead);
  }
  if constexpr (kStaged) ptx::EndCopyGroup();
}

// All producers.
__device__ inline void Produce(const SparseParams& p, Shared& shared) {
  int pair = 0;
  LookAhead ahead(p, shared.ahead[Producer() / kWarp]);
  for (int i = -3; i < 0; ++i) ahead.Advance<0>(p, i);
  uint32_t phase = 1;  // of the empty barriers: one turn a pair
  int item = static_cast<int>(blockIdx.x);
  for (int count = 0; item < p.num_items; item += static_cast<int>(gridDim.x), ++count) {
    // The first query is the consumers' work.
    if (count != 0) {
      FillQuery<8>(QueryOf(p, item), shared.query, Producer(), [&] { ptx::BarrierWait(&shared.query_empty, (count & 1) ^ 1); });
    }
    if (threadIdx.x == kConsumers) {
      const ItemKeys keys = KeysOf(p, ahead.Row(count));
      shared.window = keys.window;
      shared.latents = keys.latents;
    }
    ArriveOfWarp(&shared.query_full);
    Steps now(ahead, pair), later = now;
    Batch batch;
    Load(Source(p, ahead, pair, later.step()), batch);
    later.Next(ahead);
    Copy(Source(p, ahead, pair, later.step()), shared.stage);
    ptx::EndCopyGroup();
    later.Next(ahead);
    const int next = item + static_cast<int>(gridDim.x), first_pair = pair;
    do {
      ahead.Advance<1>(p, pair);
      if (threadIdx.x == kConsumers) PrefetchQuery(p, next, pair - first_pair);
      // Four, six or eight steps.
      do {
        RunStep<false>(p, ahead, phase, now, later, batch, shared);
        RunStep<true>(p, ahead, phase, now, later, batch, shared);
        if (now.pair() != pair) break;
        ptx::EndCopyGroup();
      } while (true);
      phase ^= 1;
      ++pair;
    } while (now.step() >= 0);
  }
}

}  // namespace deepinfer::backend::cuda::sparse
