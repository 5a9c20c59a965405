// SPDX-License-Identifier: Apache-2.0
// Sparse attention of many rows: as attention_sm90.cu, with the same consumers and so the same bits, but one warpgroup of producers
// gathers keys that are decoded already (gather_decode_sm90.cu), another brings queries. Copies arrive at the full barriers by
// themselves: no producer waits for what it has begun.
#include <algorithm>

#include "backend/cuda/attention/gather_launch.h"
#include "backend/cuda/attention/sparse_consume_sm90.cuh"
#include "backend/cuda/attention/sparse_places_sm90.cuh"

namespace deepinfer::backend::cuda {
namespace {

using namespace sparse;  // NOLINT: the other parts of this kernel

constexpr int kGatherers = kWarpgroup, kQueryBringers = kWarpgroup;
constexpr int kScoringRegisters = 200, kGatheringRegisters = 40, kQueryRegisters = 72;  // 200 twice: 4 x 128 in all
constexpr int kGatheredKeys = kTileKeys / (kGatherers / kWarp);  // of a tile, for a warp
constexpr int kKeyBytes = kDim * 2;

// A row's numbers as they are read, one by each of the first lanes: they are on their way while the item before is gathered.
__device__ int LoadNumbers(const SparseParams& p, const DecodedKeys& keys, int item) {
  const int64_t row = p.RowOf(min(item, p.num_items - 1));
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int32_t* at = p.op.positions + row;
  if (lane == 1) at = p.op.window_floor + row;
  if (lane == 2 && p.op.has_latents) at = p.op.selected_count + row;
  if (lane == 3) at = &keys.begins[row].x;
  if (lane == 4) at = &keys.begins[row].y;
  return *at;
}

// An item's keys, and where they begin among the decoded ones.
struct Gathered {
  int window, latents;
  int window_begin;  // number of the first window key
  int latent_begin;  // of latent 0
};
__device__ Gathered Unpack(const SparseParams& p, int numbers) {
  const RowNumbers row = {__shfl_sync(kAllLanes, numbers, 0), __shfl_sync(kAllLanes, numbers, 1), 0, __shfl_sync(kAllLanes, numbers, 2), 0};
  const ItemKeys keys = KeysOf(p, row);
  return {keys.window, keys.latents, __shfl_sync(kAllLanes, numbers, 3) + keys.first, __shfl_sync(kAllLanes, numbers, 4)};
}

// Each lane has a key of one of the pair's tiles in mind: lane 16 i + j key j of the warp's in tile i.
__device__ int KeyOfLane(int pair) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) % kGatherers / kWarp;
  return (2 * pair + lane / kGatheredKeys) * kTileKeys + warp * kGatheredKeys + lane % kGatheredKeys;
}

// The lane's chosen latent in this pair; anything where it has none. Loaded without a branch, behind which it would be waited for.
__device__ int LoadChosen(const SparseParams& p, int item, const Gathered& keys, int pair) {
  const int chosen = KeyOfLane(pair) - Tiles(keys.window) * kTileKeys;
  const int32_t* at = p.op.positions;
  if (chosen >= 0 && chosen < keys.latents) at = p.op.selected + p.RowOf(min(item, p.num_items - 1)) * p.op.topk + chosen;
  return *at;
}

// The number of the lane's key; 0: none.
__device__ int NumberOf(const Gathered& keys, int pair, int chosen) {
  const int key = KeyOfLane(pair), window_keys = Tiles(keys.window) * kTileKeys;
  if (key < window_keys) return key < keys.window ? keys.window_begin + key : 0;
  return key - window_keys < keys.latents ? keys.latent_begin + chosen : 0;
}

// Eight lanes copy 128 bytes of a key, 64 channels: four keys an instruction, each in its row of the swizzled tile.
struct Gatherer {
  const uint8_t* keys;
  Meeting& shared;
  uint32_t to;  // in a tile: the lane's unit of the first of its four keys
  uint32_t parity;

  __device__ void CopyHalf(int tile, int half, const uint32_t (&from)[4]) const {
    ptx::BarrierWait(&shared.empty[tile][half], parity);
    const uint32_t first = ptx::SharedAddress(shared.keys[tile]) + half * (kChunks / 2) * kChunkBytes + to;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      // Four keys further on: the row's number in the swizzle has its upper bit the other way.
      const uint32_t row = (i % 2 == 0 ? first : (first ^ 64) + 512) + i / 2 * 1024;
      const uint8_t* key = keys + from[i] + half * (kKeyBytes / 2);
#pragma unroll
      for (int chunk = 0; chunk < kChunks / 2; ++chunk) ptx::CopyUnit(row + chunk * kChunkBytes, key + chunk * 128);
    }
    ptx::BarrierArriveBehindCopies(&shared.full[tile][half]);
  }
};

__device__ void Gather(const SparseParams& p, const DecodedKeys& decoded, Meeting& shared) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp, step = static_cast<int>(gridDim.x);
  const uint32_t warp = threadIdx.x % kGatherers / kWarp, row = static_cast<uint32_t>(lane) / 8, unit = static_cast<uint32_t>(lane) % 8;
  Gatherer gatherer{decoded.keys + unit * 16, shared, warp * (kGatheredKeys * 128) + row * 128 + (unit ^ row) * 16, 1};
  int item = static_cast<int>(blockIdx.x), pair = 0;
  Gathered keys = Unpack(p, LoadNumbers(p, decoded, item));
  int next_numbers = LoadNumbers(p, decoded, item + step);
  int chosen = LoadChosen(p, item, keys, 0);
  while (item < p.num_items) {
    const int number = NumberOf(keys, pair, chosen);
    uint32_t from[2][4];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int of_lane = i / 4 * kGatheredKeys + i % 4 * 4 + static_cast<int>(row);
      from[i / 4][i % 4] = static_cast<uint32_t>(__shfl_sync(kAllLanes, number, of_lane)) * kKeyBytes;
    }
    if (warp == 0 && lane < 4) PrefetchQuery(p, item, pair, lane);
    if (++pair == Pairs(keys.window, keys.latents)) {
      pair = 0;
      item += step;
      keys = Unpack(p, next_numbers);
      next_numbers = LoadNumbers(p, decoded, item + step);
    }
    chosen = LoadChosen(p, item, keys, pair);
    gatherer.CopyHalf(0, kLeft, from[0]);
    gatherer.CopyHalf(1, kRight, from[1]);
    gatherer.CopyHalf(0, kRight, from[0]);
    gatherer.CopyHalf(1, kLeft, from[1]);
    gatherer.parity ^= 1;
  }
}

// A thread's four channels of every head of the query, as FillQuery (sparse_query_sm90.cuh) brings them.
struct QueryRows {
  const float* from;
  uint32_t to;
  bool odd;

  __device__ QueryRows(const float* q, const Meeting& shared, int t) : from(q + t * 4), odd(t % 2 != 0) {
    const int part = t / 4, chunk = part / 4, unit = part % 4 + (chunk % 2 ^ t % 2) * 4;
    to = ptx::SharedAddress(shared.query) + static_cast<uint32_t>(chunk * kChunkBytes + t % 4 / 2 * 8 + unit * 16);
  }
  __device__ float4 Load(int row) const { return ptx::LoadStreamed(from + row * kDim); }
  __device__ uint2 Pack(const float4& v) const {
    const float a = __shfl_xor_sync(kAllLanes, odd ? v.x : v.y, 1), b = __shfl_xor_sync(kAllLanes, odd ? v.z : v.w, 1);
    return odd ? make_uint2(ptx::PackBf16x2(a, v.y), ptx::PackBf16x2(b, v.w))
               : make_uint2(ptx::PackBf16x2(v.x, a), ptx::PackBf16x2(v.z, b));
  }
  __device__ void Store(int row, const uint2& words) const {
    ptx::StoreShared((to ^ static_cast<uint32_t>(row % 8 * 16)) + static_cast<uint32_t>(row / 8 * 1024 + row % 8 * 128), words);
  }
};

// As many heads as there are registers for are on their way before the place is free, the first of them rounded.
__device__ void BringQuery(const float* q, Meeting& shared, int t, uint32_t phase) {
  constexpr int kAhead = 8, kInFlight = 8, kRows = 16;
  QueryRows rows(q, shared, t);
  uint2 ahead[kAhead];
#pragma unroll
  for (int i = 0; i < kAhead; i += kInFlight) {
    float4 v[kInFlight];
#pragma unroll
    for (int j = 0; j < kInFlight; ++j) v[j] = rows.Load(i + j);
#pragma unroll
    for (int j = 0; j < kInFlight; ++j) {
      ahead[i + j] = rows.Pack(v[j]);
      asm volatile("" : "+r"(ahead[i + j].x), "+r"(ahead[i + j].y));
    }
  }
  float4 v[kInFlight];
#pragma unroll
  for (int j = 0; j < kInFlight; ++j) v[j] = rows.Load(kAhead + j);
  ptx::BarrierWait(&shared.query_empty, phase);
  asm volatile("" : "+r"(rows.to));
#pragma unroll
  for (int j = 0; j < kAhead; ++j) rows.Store(j, ahead[j]);
#pragma unroll
  for (int j = 0; j < kInFlight; ++j) rows.Store(kAhead + j, rows.Pack(v[j]));
  rows.from += (kAhead + kInFlight) * kDim;
  rows.to += (kAhead + kInFlight) / 8 * 1024;
  static_assert((kHeads - kAhead - kInFlight) % kRows == 0);
#pragma unroll 1
  for (int round = 0; round < (kHeads - kAhead - kInFlight) / kRows; ++round) {
    asm volatile("" : "+r"(rows.to));
    float4 w[kRows];
#pragma unroll
    for (int j = 0; j < kRows; ++j) w[j] = rows.Load(j);
#pragma unroll
    for (int j = 0; j < kRows; ++j) rows.Store(j, rows.Pack(w[j]));
    rows.from += kRows * kDim;
    rows.to += kRows / 8 * 1024;
  }
}

// Queries, and what else the consumers need of an item.
__device__ void BringQueries(const SparseParams& p, Meeting& shared) {
  const int t = static_cast<int>(threadIdx.x) % kQueryBringers, first = static_cast<int>(blockIdx.x), step = static_cast<int>(gridDim.x);
  uint32_t turn = 0;
  for (int item = first; item < p.num_items; item += step, turn ^= 1) {
    const int first_head = p.FirstHead(item);
    const int64_t row = p.RowOf(item);
    const float* from = t < kHeads ? p.op.sink + first_head + t : nullptr;
    const int turned = t - kHeads - (kTurnedMax - static_cast<int>(p.op.rope_dim));
    if (t >= kHeads && turned >= 0) from = p.op.table + row * p.op.rope_dim + turned;
    const float value = from != nullptr ? *from : 1.0f - static_cast<float>(t % 2);
    const RowNumbers numbers = {p.op.positions[row], p.op.window_floor[row], 0, p.op.has_latents ? p.op.selected_count[row] : 0, 0};
    if (item != first) {
      BringQuery(p.op.q + (row * p.op.heads + first_head) * kDim, shared, t, turn ^ 1);
    }
    if (t < kHeads) {
      shared.sinks[turn][t] = value * kLog2E;
    } else {
      shared.turns[turn][t - kHeads] = value;
    }
    const ItemKeys keys = KeysOf(p, numbers);
    if (t == 0) shared.counts = make_int2(keys.window, keys.latents);
    ArriveOfWarp(&shared.query_full);
  }
}

__global__ void __launch_bounds__(kThreads, 1) GatherAttentionKernel(const __grid_constant__ SparseParams p, const DecodedKeys keys) {
  extern __shared__ __align__(1024) uint8_t raw[];
  auto& shared = *reinterpret_cast<Meeting*>(raw);
  if (keys.runs->num_keys == 0) return;
  if (threadIdx.x == 0) {
    for (int i = 0; i < 4; ++i) {
      ptx::BarrierInit(&shared.full[i / 2][i % 2], kGatherers);
      ptx::BarrierInit(&shared.empty[i / 2][i % 2], kWarpgroup / kWarp);
    }
    ptx::BarrierInit(&shared.query_full, kQueryBringers / kWarp);
    ptx::BarrierInit(&shared.query_empty, kConsumers / kWarp);
    ptx::FenceBarrierInit();
  }
  __syncthreads();
  // Made uniform for ptxas, which otherwise runs one product at a time.
  const int group = __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x) / kWarpgroup, 0);
  if (group == 0) {
    ptx::TakeRegisters<kScoringRegisters>();
    Consume<0>(p, shared);
  } else if (group == 1) {
    ptx::TakeRegisters<kScoringRegisters>();
    Consume<1>(p, shared);
  } else if (group == 2) {
    ptx::ReleaseRegisters<kGatheringRegisters>();
    Gather(p, keys, shared);
  } else {
    ptx::ReleaseRegisters<kQueryRegisters>();
    BringQueries(p, shared);
  }
}

}  // namespace

void GatherAttention(Context& context, const SparseParams& p, const DecodedKeys& keys) {
  constexpr int kBytes = sizeof(Meeting);
  static_assert(kBytes <= 227 * 1024);
  context.Record(cudaFuncSetAttribute(GatherAttentionKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes),
                 "attention: shared memory");
  const int blocks = std::min(p.num_items, context.num_sms());
  GatherAttentionKernel<<<static_cast<unsigned>(blocks), kThreads, kBytes, context.stream()>>>(p, keys);
}

}  // namespace deepinfer::backend::cuda
