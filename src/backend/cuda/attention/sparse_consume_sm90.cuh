// SPDX-License-Identifier: Apache-2.0
// The consumers of sparse attention, whoever brings the keys: two warpgroups that score, weigh and sum (attention_sm90.cu).
#pragma once

#include "backend/cuda/attention/sparse_decode_sm90.cuh"
#include "backend/cuda/attention/sparse_query_sm90.cuh"
#include "backend/cuda/attention/sparse_store_sm90.cuh"

namespace deepinfer::backend::cuda::sparse {

// Named barriers of the consumers; 0 is __syncthreads.
enum Signal { kTop0 = 1, kTop1 = 2, kWeights0 = 3, kWeights1 = 4, kSums = 5 };

using Outputs = float[2][64];       // [run of 128 channels][column / 8][h][column % 2] of a half

// Waits for half of a tile and starts its part of the scores.
__device__ inline void StartScores(Meeting& shared, int tile, Half half, uint32_t phase, Scores& s) {
  WaitForData(&shared.full[tile][half], phase);
  const uint32_t offset = half * (kChunks / 2) * kChunkBytes;
  StartHalfScores(ptx::SharedAddress(shared.query) + offset, ptx::SharedAddress(shared.keys[tile]) + offset, s);
}

// Half of the channels of a tile, columns contiguous; 16 keys further on are 2,048 bytes, 128 channels two chunks further.
__device__ inline Operand Values(const Meeting& shared, int tile, int half) {
  const uint32_t values = ptx::SharedAddress(shared.keys[tile]) + half * (kChunks / 2) * kChunkBytes;
  return Operand(ptx::SwizzledTransposedOperand(values, kChunkBytes));
}

__device__ inline void FenceOutputs(Outputs& o) {
  ptx::WgmmaFenceRegisters(o[0]);
  ptx::WgmmaFenceRegisters(o[1]);
}

// Adds the own tile's weights times its values.
__device__ inline void StartOwnValues(const Meeting& shared, int half, const Weights& a, Outputs& o) {
  const Operand values = Values(shared, half, half);
  FenceOutputs(o);
  ptx::WgmmaFence();
#pragma unroll
  for (int step = 0; step < kTileKeys / 16; ++step) {
#pragma unroll
    for (int run = 0; run < 2; ++run) ptx::WgmmaTransposed(o[run], a[step], values.At(step * 2048 + run * 2 * kChunkBytes));
  }
  ptx::WgmmaCommit();
}

// Adds the other tile's, whose weights lie in shared memory.
__device__ inline void StartOtherValues(const Meeting& shared, int half, Outputs& o) {
  const int tile = 1 - half;
  const Operand weights(ptx::SwizzledOperand(ptx::SharedAddress(shared.weights[tile])));
  const Operand values = Values(shared, tile, half);
  ptx::WgmmaFence();
#pragma unroll
  for (int step = 0; step < kTileKeys / 16; ++step) {
#pragma unroll
    for (int run = 0; run < 2; ++run) {
      ptx::WgmmaShared<true>(o[run], weights.At(step * 32), values.At(step * 2048 + run * 2 * kChunkBytes));
    }
  }
  ptx::WgmmaCommit();
}

__device__ inline void Scale(const float (&factor)[2], Outputs& o) {
  if (!__any_sync(kAllLanes, factor[0] != 1.0f || factor[1] != 1.0f)) return;
#pragma unroll
  for (int i = 0; i < 128; ++i) o[i / 64][i % 64] *= factor[i / 2 % 2];
}

struct ConsumerItem {
  int window;
  int latents;
  int pairs;
  float scale;     // of a score, in powers of two
  uint32_t phase;  // of the full barriers at the first pair
};

// Makes both groups' later accesses of finished products stay behind the wait.
template <int kPending>
__device__ inline void WaitForValues(Outputs& o) {
  ptx::WgmmaWait<kPending>();
  FenceOutputs(o);
}

// The scores of a warpgroup's tile of a pair, its own channels first, and their maxima. Behind the last ones the query may be replaced.
template <int kTile>
__device__ inline void ScoreTile(Meeting& shared, const ConsumerItem& item, int pair, uint32_t phase, Scores& s, float (&best)[2]) {
  ptx::WgmmaFenceRegisters(s);
  StartScores(shared, kTile, kTile == 0 ? kLeft : kRight, phase, s);
  StartScores(shared, kTile, kTile == 0 ? kRight : kLeft, phase, s);
  ptx::WgmmaWait<0>();
  ptx::WgmmaFenceRegisters(s);
  if (pair + 1 == item.pairs && LeadsWarp()) ptx::BarrierArrive(&shared.query_empty);
  Maxima(Valid(2 * pair + kTile, item.window, item.latents), item.scale, s, best);
}

// Warpgroup 0: even tiles, left channels.
__device__ inline void SumLeft(Meeting& shared, const ConsumerItem& item, Running& running, Outputs& o) {
  const int head = Head();
  const bool stores = threadIdx.x % 4 == 0;
  uint32_t phase = item.phase;
  for (int pair = 0; pair < item.pairs; ++pair, phase ^= 1) {
    Scores s = {};
    float best[2];
    ScoreTile<0>(shared, item, pair, phase, s, best);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      running.MoveTo(h, Moved(running.top[h], best[h]));
      if (stores) shared.tops[0][head + 8 * h] = running.top[h];
    }
    ptx::ArriveThreads(kTop0, kConsumers);
    Weights a;
    float sum[2];
    Weigh(item.scale, s, running.top, a, sum);
#pragma unroll
    for (int h = 0; h < 2; ++h) running.sum[h] += sum[h];
    Scale(running.factor, o);
    StartOwnValues(shared, kLeft, a, o);
    WaitForValues<0>(o);
#pragma unroll
    for (int step = 0; step < 4; ++step) ptx::WgmmaFenceRegisters(a[step]);
    if (LeadsWarp()) ptx::BarrierArrive(&shared.empty[0][kLeft]);
    ptx::SyncThreads(kTop1, kConsumers);
#pragma unroll
    for (int h = 0; h < 2; ++h) running.MoveTo(h, shared.tops[1][head + 8 * h]);
    StoreWeights(a, running.factor, shared.weights[0]);
    ptx::ArriveThreads(kWeights0, kConsumers);
    ptx::SyncThreads(kWeights1, kConsumers);
    Scale(running.factor, o);
    FenceOutputs(o);
    WaitForData(&shared.full[1][kLeft], phase);
    StartOtherValues(shared, kLeft, o);
    WaitForValues<0>(o);
    if (LeadsWarp()) ptx::BarrierArrive(&shared.empty[1][kLeft]);
  }
}

// Warpgroup 1: odd tiles, right channels.
__device__ inline void SumRight(Meeting& shared, const ConsumerItem& item, Running& running, Outputs& o) {
  const int head = Head();
  const bool stores = threadIdx.x % 4 == 0;
  uint32_t phase = item.phase;
  for (int pair = 0; pair < item.pairs; ++pair, phase ^= 1) {
    Scores s = {};
    float best[2];
    ScoreTile<1>(shared, item, pair, phase, s, best);
    ptx::SyncThreads(kTop0, kConsumers);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      running.MoveTo(h, Moved(shared.tops[0][head + 8 * h], best[h]));
      if (stores) shared.tops[1][head + 8 * h] = running.top[h];
    }
    ptx::ArriveThreads(kTop1, kConsumers);
    Weights a;
    float sum[2];
    Weigh(item.scale, s, running.top, a, sum);
#pragma unroll
    for (int h = 0; h < 2; ++h) running.sum[h] += sum[h];
    Scale(running.factor, o);
    StartOwnValues(shared, kRight, a, o);
    constexpr float kOnes[2] = {1.0f, 1.0f};
    StoreWeights(a, kOnes, shared.weights[1]);
    ptx::ArriveThreads(kWeights1, kConsumers);
    WaitForValues<0>(o);
#pragma unroll
    for (int step = 0; step < 4; ++step) ptx::WgmmaFenceRegisters(a[step]);
    if (LeadsWarp()) ptx::BarrierArrive(&shared.empty[1][kRight]);
    ptx::SyncThreads(kWeights0, kConsumers);
    WaitForData(&shared.full[0][kRight], phase);
    StartOtherValues(shared, kRight, o);
    WaitForValues<0>(o);
    if (LeadsWarp()) ptx::BarrierArrive(&shared.empty[0][kRight]);
  }
}

// A consumer warpgroup.
template <int kGroup>
__device__ inline void Consume(const SparseParams& p, Meeting& shared) {
  const int head = Head();
  const int first = static_cast<int>(blockIdx.x);
  const float* q = p.op.q + (p.RowOf(first) * p.op.heads + p.FirstHead(first)) * kDim;
  FillQuery<16>(static_cast<int>(threadIdx.x), q, shared.query, nullptr, 0);
  ptx::FenceAsyncShared();
  ptx::SyncThreads(kSums, kConsumers);
  uint32_t phase = 0, turn = 0;  // of the pair's barriers, and of the query's
  for (int at = first; at < p.num_items; at += static_cast<int>(gridDim.x), turn ^= 1) {
    const int first_head = p.FirstHead(at);
    const int64_t row = p.RowOf(at);
    WaitForData(&shared.query_full, turn);
    Running running;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      running.top[h] = shared.sinks[turn][head + 8 * h];
      running.sum[h] = 0.0f;
    }
    const int window = __shfl_sync(kAllLanes, shared.counts.x, 0), latents = __shfl_sync(kAllLanes, shared.counts.y, 0);
    const ConsumerItem item = {window, latents, Pairs(window, latents), p.op.scale * kLog2E * kKeyRepair, phase};
    phase ^= item.pairs & 1;
    Outputs o = {};
    if constexpr (kGroup == 0) {
      SumLeft(shared, item, running, o);
    } else {
      SumRight(shared, item, running, o);
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float sum = QuadSum(running.sum[h]);
      if (threadIdx.x % 4 == 0) shared.sums[kGroup][head + 8 * h] = sum;
    }
    ptx::SyncThreads(kSums, kConsumers);
    float inverse[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float sum = shared.sums[0][head + 8 * h] + shared.sums[1][head + 8 * h] +
                        Exp2(shared.sinks[turn][head + 8 * h] - running.top[h]);
      inverse[h] = kKeyRepair / sum;
    }
    StoreOutputs<kDim / 2 / 16, 0, kGroup == 1, true>(p, row, first_head, kGroup * (kChunks / 2), inverse, o, shared.turns[turn]);
  }
}

}  // namespace deepinfer::backend::cuda::sparse
