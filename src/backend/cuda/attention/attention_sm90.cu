// SPDX-License-Identifier: Apache-2.0
// Sparse attention on the tensor cores for 64 heads of 512 channels and the caches' formats (spec/model.md 3).
//
// A block computes one row: 64 heads are the 64 rows of a wgmma. Two producer warpgroups gather tiles of 64 keys by
// index and decode them to bf16 in shared memory, where one copy serves as K and, read with its columns contiguous, as V.
// Two consumer warpgroups each score half of a tile's keys, exchange maxima and weights through shared memory, and each sum
// half of the output channels.
//
// Accumulation contract: query and weights rounded to bf16; keys by their place in the list (window ascending, then the
// chosen latents) in tiles of 64; running maximum from the sink on; per tile the sums so far are scaled by
// exp2(old - new maximum) and the tile's products added by the tensor core in steps of 16; the denominator sums unrounded
// weights, thread by thread, then the sink. Nothing depends on other rows.
#include <cmath>

#include "backend/cuda/attention/attention_launch.h"
#include "backend/cuda/attention/sparse_decode_sm90.cuh"
#include "backend/cuda/ptx/pipeline.cuh"
#include "backend/cuda/ptx/wgmma_sm90.cuh"

namespace deepinfer::backend::cuda {
namespace {

constexpr int kHeads = 64;       // of a block
constexpr int kDim = 512;
constexpr int kTileKeys = 64;
constexpr int kStages = 2;
constexpr int kWarpgroup = 128;
constexpr int kConsumers = 2 * kWarpgroup, kProducers = 2 * kWarpgroup;
constexpr int kThreads = kConsumers + kProducers;
constexpr int kConsumerRegisters = 192, kProducerRegisters = 64;  // 4 x 128 in all
constexpr int kChunks = kDim / 64;                                // runs of 64 channels: 128 bytes
constexpr int kChunkBytes = kTileKeys * 128;                      // also of the query: 64 rows
constexpr float kLog2E = 1.4426950408889634f;

struct Shared {
  alignas(1024) uint8_t query[kChunks * kChunkBytes];
  alignas(1024) uint8_t keys[kStages][kChunks * kChunkBytes];
  alignas(1024) uint8_t weights[kHeads * kTileKeys * 2];
  float maxima[2][kHeads];
  float sums[2][kHeads];
  uint64_t full[kStages];
  uint64_t empty[kStages];
};

// Byte of a 16-byte unit within a swizzled run of 64 channels (or keys).
__device__ int UnitOffset(int row, int unit) { return row / 8 * 1024 + row % 8 * 128 + (unit ^ row % 8) * 16; }

// All threads: the query of the row as bf16.
__device__ void LoadQuery(const float* q, uint8_t* out) {
  for (int at = threadIdx.x; at < kHeads * kDim / 8; at += kThreads) {
    const int head = at / (kDim / 8), unit = at % (kDim / 8);
    const float4 a = *reinterpret_cast<const float4*>(q + head * kDim + unit * 8);
    const float4 b = *reinterpret_cast<const float4*>(q + head * kDim + unit * 8 + 4);
    *reinterpret_cast<uint4*>(out + unit / 8 * kChunkBytes + UnitOffset(head, unit % 8)) =
        make_uint4(ptx::PackBf16x2(a.x, a.y), ptx::PackBf16x2(a.z, a.w), ptx::PackBf16x2(b.x, b.y), ptx::PackBf16x2(b.z, b.w));
  }
}

// The producer warpgroups: a warp decodes 8 keys of a tile, whose loads are all in flight while it waits for the stage. The
// places of the next tile's keys, a chain of three loads, are looked up meanwhile.
__device__ void Produce(const AttentionParams& p, int64_t row, const Keys& keys, Shared& shared) {
  constexpr int kWarpKeys = kTileKeys / (kProducers / kWarp);
  const int lane = threadIdx.x % kWarp, warp = (threadIdx.x - kConsumers) / kWarp;
  // Eight neighbouring lanes write two runs of channels; odd runs write their second unit first, so that no bank is hit twice.
  const int chunk = lane / 4, odd = chunk % 2, first_unit = lane % 4 * 2 + odd, second_unit = lane % 4 * 2 + 1 - odd;
  const int tiles = (keys.count + kTileKeys - 1) / kTileKeys;
  KeyPlace mine = FindKey(p, row, keys, warp * kWarpKeys + lane % kWarpKeys);
  for (int tile = 0; tile < tiles; ++tile) {
    const int stage = tile % kStages, first = tile * kTileKeys + warp * kWarpKeys;
    KeyBytes bytes[kWarpKeys];
#pragma unroll
    for (int k = 0; k < kWarpKeys; ++k) {
      const KeyPlace place = {
          reinterpret_cast<const uint8_t*>(__shfl_sync(kAllLanes, reinterpret_cast<unsigned long long>(mine.codes), k)),
          reinterpret_cast<const uint8_t*>(__shfl_sync(kAllLanes, reinterpret_cast<unsigned long long>(mine.scales), k))};
      bytes[k] = LoadKey(place, first + k < keys.window, lane);
    }
    mine = FindKey(p, row, keys, first + kTileKeys + lane % kWarpKeys);
    ptx::BarrierWait(&shared.empty[stage], (tile / kStages & 1) ^ 1);
    uint8_t* out = shared.keys[stage] + chunk * kChunkBytes;
#pragma unroll
    for (int k = 0; k < kWarpKeys; ++k) {
      uint4 units[2];
      DecodeKey(bytes[k], first + k < keys.window, units);
      *reinterpret_cast<uint4*>(out + UnitOffset(warp * kWarpKeys + k, first_unit)) = odd != 0 ? units[1] : units[0];
      *reinterpret_cast<uint4*>(out + UnitOffset(warp * kWarpKeys + k, second_unit)) = odd != 0 ? units[0] : units[1];
    }
    ptx::FenceAsyncShared();
    ptx::BarrierArrive(&shared.full[stage]);
  }
}

// Scores of the warpgroup's 32 keys of the tile.
__device__ void Score(const Shared& shared, int stage, int half, float (&s)[16]) {
  const uint32_t query = ptx::SharedAddress(shared.query);
  const uint32_t keys = ptx::SharedAddress(shared.keys[stage]) + half * (kChunkBytes / 2);
#pragma unroll
  for (int i = 0; i < 16; ++i) s[i] = 0.0f;
  ptx::WgmmaFenceRegisters(s);
  ptx::WgmmaFence();
#pragma unroll
  for (int step = 0; step < kDim / 16; ++step) {
    const uint32_t offset = step / 4 * kChunkBytes + step % 4 * 32;
    ptx::WgmmaShared<false>(s, ptx::SwizzledOperand(query + offset), ptx::SwizzledOperand(keys + offset));
  }
  ptx::WgmmaCommit();
  ptx::WgmmaWait();
  ptx::WgmmaFenceRegisters(s);
}

// The output sums of a consumer warpgroup: 256 channels as two runs of 128.
using Outputs = float[2][64];

// Adds weights times values for the warpgroup's channels.
__device__ void AddValues(const Shared& shared, int stage, int half, Outputs& o) {
  const uint32_t weights = ptx::SharedAddress(shared.weights);
  const uint32_t values = ptx::SharedAddress(shared.keys[stage]) + half * (kChunks / 2) * kChunkBytes;
#pragma unroll
  for (int run = 0; run < 2; ++run) ptx::WgmmaFenceRegisters(o[run]);
  ptx::WgmmaFence();
#pragma unroll
  for (int step = 0; step < kTileKeys / 16; ++step) {
#pragma unroll
    for (int run = 0; run < 2; ++run) {
      ptx::WgmmaShared<true>(o[run], ptx::SwizzledOperand(weights + step * 32),
                             ptx::SwizzledTransposedOperand(values + run * 2 * kChunkBytes + step * 2048, kChunkBytes));
    }
  }
  ptx::WgmmaCommit();
  ptx::WgmmaWait();
#pragma unroll
  for (int run = 0; run < 2; ++run) ptx::WgmmaFenceRegisters(o[run]);
}

__device__ float QuadMax(float value) {
  value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, 1));
  return fmaxf(value, __shfl_xor_sync(kAllLanes, value, 2));
}
__device__ float QuadSum(float value) {
  value += __shfl_xor_sync(kAllLanes, value, 1);
  return value + __shfl_xor_sync(kAllLanes, value, 2);
}

// A thread's two heads (h = 0, 1) of the running softmax.
struct Running {
  float top[2];
  float sum[2];
};

// Turns scores into weights in shared memory; returns the factors for the sums so far.
__device__ void Weigh(Shared& shared, int half, int first_key, int count, float scale, float (&s)[16], Running& running,
                      float (&factor)[2]) {
  const int t = static_cast<int>(threadIdx.x) % kWarpgroup, c = t % 4, head = t / kWarp * 16 + t % kWarp / 4;
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    const int key = first_key + i / 4 * 8 + 2 * c + i % 2;
    s[i] = key < count ? s[i] * scale : -INFINITY;
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float top = -INFINITY;
#pragma unroll
    for (int i = 0; i < 16; ++i) top = i / 2 % 2 == h ? fmaxf(top, s[i]) : top;
    top = QuadMax(top);
    if (c == 0) shared.maxima[half][head + 8 * h] = top;
  }
  ptx::SyncThreads(1, kConsumers);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const float top = fmaxf(running.top[h], fmaxf(shared.maxima[0][head + 8 * h], shared.maxima[1][head + 8 * h]));
    factor[h] = exp2f(running.top[h] - top);
    running.top[h] = top;
    running.sum[h] *= factor[h];
  }
#pragma unroll
  for (int j = 0; j < 4; ++j) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float a = exp2f(s[4 * j + 2 * h] - running.top[h]), b = exp2f(s[4 * j + 2 * h + 1] - running.top[h]);
      running.sum[h] += a + b;
      *reinterpret_cast<uint32_t*>(shared.weights + UnitOffset(head + 8 * h, half * 4 + j) + 4 * c) = ptx::PackBf16x2(a, b);
    }
  }
  ptx::FenceAsyncShared();
  ptx::SyncThreads(2, kConsumers);
}

// Divides, turns the last channels back by the row's position, and stores.
__device__ void Store(const AttentionParams& p, int64_t row, int first_head, int half, const float (&inverse)[2],
                      const Outputs& o) {
  const int t = static_cast<int>(threadIdx.x) % kWarpgroup, c = t % 4, head = first_head + t / kWarp * 16 + t % kWarp / 4;
  const int plain = kDim - static_cast<int>(p.rope_dim);
#pragma unroll
  for (int j = 0; j < 32; ++j) {
    const int channel = half * 256 + j * 8 + 2 * c;
    float cosine = 1.0f, sine = 0.0f;
    if (channel >= plain) {
      cosine = p.table[row * p.rope_dim + channel - plain];
      sine = p.table[row * p.rope_dim + channel - plain + 1];
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float a = o[j / 16][j % 16 * 4 + 2 * h] * inverse[h], b = o[j / 16][j % 16 * 4 + 2 * h + 1] * inverse[h];
      *reinterpret_cast<float2*>(p.out + (row * p.heads + head + 8 * h) * kDim + channel) =
          make_float2(a * cosine + b * sine, b * cosine - a * sine);
    }
  }
}

// A consumer warpgroup.
__device__ void Consume(const AttentionParams& p, int64_t row, int first_head, const Keys& keys, Shared& shared) {
  const int t = static_cast<int>(threadIdx.x) % kWarpgroup, half = static_cast<int>(threadIdx.x) / kWarpgroup;
  const int head = t / kWarp * 16 + t % kWarp / 4;
  Running running;
  float sink[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    sink[h] = p.sink[first_head + head + 8 * h] * kLog2E;
    running.top[h] = sink[h];
    running.sum[h] = 0.0f;
  }
  Outputs o = {};
  const int tiles = (keys.count + kTileKeys - 1) / kTileKeys;
  for (int tile = 0; tile < tiles; ++tile) {
    const int stage = tile % kStages;
    float s[16], factor[2];
    ptx::BarrierWait(&shared.full[stage], tile / kStages & 1);
    Score(shared, stage, half, s);
    Weigh(shared, half, tile * kTileKeys + half * 32, keys.count, p.scale * kLog2E, s, running, factor);
    if (__any_sync(kAllLanes, factor[0] != 1.0f || factor[1] != 1.0f)) {
#pragma unroll
      for (int i = 0; i < 128; ++i) o[i / 64][i % 64] *= factor[i / 2 % 2];
    }
    AddValues(shared, stage, half, o);
    if (t % kWarp == 0) ptx::BarrierArrive(&shared.empty[stage]);
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const float sum = QuadSum(running.sum[h]);
    if (t % 4 == 0) shared.sums[half][head + 8 * h] = sum;
  }
  ptx::SyncThreads(1, kConsumers);
  float inverse[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const float sum = shared.sums[0][head + 8 * h] + shared.sums[1][head + 8 * h] + exp2f(sink[h] - running.top[h]);
    inverse[h] = 1.0f / sum;
  }
  Store(p, row, first_head, half, inverse, o);
}

__global__ void __launch_bounds__(kThreads, 1) SparseAttentionKernel(const __grid_constant__ AttentionParams p) {
  extern __shared__ uint8_t raw[];
  auto& shared = *reinterpret_cast<Shared*>((reinterpret_cast<uintptr_t>(raw) + 1023) / 1024 * 1024);
  const int64_t row = blockIdx.x;
  const int first_head = static_cast<int>(blockIdx.y) * kHeads;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      ptx::BarrierInit(&shared.full[i], kProducers);
      ptx::BarrierInit(&shared.empty[i], kConsumers / kWarp);
    }
    ptx::FenceBarrierInit();
  }
  LoadQuery(p.q + (row * p.heads + first_head) * kDim, shared.query);
  ptx::FenceAsyncShared();
  __syncthreads();
  const Keys keys = FindKeys(p, row);
  if (threadIdx.x < kConsumers) {
    ptx::TakeRegisters<kConsumerRegisters>();
    Consume(p, row, first_head, keys, shared);
  } else {
    ptx::ReleaseRegisters<kProducerRegisters>();
    Produce(p, row, keys, shared);
  }
}

}  // namespace

bool SparseAttentionTakes(const AttentionParams& p) {
  return p.activations != Activations::kFp32 && p.dim == kDim && p.heads % kHeads == 0 && p.rope_dim % 2 == 0 && p.rope_dim <= kDim;
}

void SparseAttention(Context& context, const AttentionParams& p) {
  constexpr int kBytes = sizeof(Shared) + 1024;
  context.Record(cudaFuncSetAttribute(SparseAttentionKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes),
                 "attention: shared memory");
  const dim3 grid(static_cast<unsigned>(p.rows), static_cast<unsigned>(p.heads / kHeads));
  SparseAttentionKernel<<<grid, kThreads, kBytes, context.stream()>>>(p);
}

}  // namespace deepinfer::backend::cuda
