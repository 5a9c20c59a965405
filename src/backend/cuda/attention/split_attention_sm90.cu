// SPDX-License-Identifier: Apache-2.0
// Sparse attention where there are fewer rows than multiprocessors: a cluster of two, four or eight blocks shares a row's run of 64
// heads. The sums are those of attention_sm90.cu, in the same order, so that the choice between the two changes no bit.
//
// A block brings its part of the query and hands it to the others. It scores every kBlocks-th tile of 64 keys, all channels, keeps the
// scores in registers, and hands the tile's maxima on. With all maxima known it turns its scores into weights, which the copy engine
// brings to the others, to where the query lay; then each block sums its part of the channels over all tiles. So every key is
// decoded twice, by parts, whatever the number of blocks, and nothing but queries, maxima, weights and their sums (9 KB a tile)
// goes between blocks.
#include "backend/cuda/attention/sparse_store_sm90.cuh"
#include "backend/cuda/attention/split_launch.h"
#include "backend/cuda/attention/split_produce_sm90.cuh"
#include "backend/cuda/launch_after.h"
#include "backend/cuda/ptx/grid.cuh"

namespace deepinfer::backend::cuda {
namespace {

using namespace sparse;  // NOLINT: the other half of this kernel

// What a consumer knows of its item.
template <int kBlocks>
struct SplitItem {
  SplitFills<kBlocks> fills;
  int window;
  int latents;
  float scale;    // of a score, in powers of two
  float sink[2];  // of the thread's heads
};

__device__ int ThreadOfGroup() { return static_cast<int>(threadIdx.x) % kWarpgroup; }

// The thread's place in best.
__device__ int BestOf() { return ThreadOfGroup() / 4; }

// The block's part of the query, as FillQuery (sparse_query_sm90.cuh) does it, then to the others; returns when theirs are here.
template <int kBlocks>
__device__ void ShareQuery(const float* q, SplitShared& shared, int rank) {
  constexpr int kFours = kDim / kBlocks / 4, kStride = kConsumers / kFours, kInFlight = kHeads / kStride;
  constexpr int kBytes = kChunks * kChunkBytes / kBlocks;
  const int t = static_cast<int>(threadIdx.x), first = t / kFours, four = t % kFours, odd = t % 2;
  const int part = four / 4, chunk = part / 4, unit = part % 4 + ((rank * (kChunks / kBlocks) + chunk) % 2 ^ odd) * 4;
  q += first * kDim + rank * (kDim / kBlocks) + four * 4;
  uint8_t* out = shared.query() + rank * kBytes;
  float4 v[kInFlight];
#pragma unroll
  for (int j = 0; j < kInFlight; ++j) v[j] = ptx::LoadStreamed(q + j * kStride * kDim);
#pragma unroll
  for (int j = 0; j < kInFlight; ++j) {
    const float a = __shfl_xor_sync(kAllLanes, odd ? v[j].x : v[j].y, 1), b = __shfl_xor_sync(kAllLanes, odd ? v[j].z : v[j].w, 1);
    const uint2 words = odd ? make_uint2(ptx::PackBf16x2(a, v[j].y), ptx::PackBf16x2(b, v[j].w))
                            : make_uint2(ptx::PackBf16x2(v[j].x, a), ptx::PackBf16x2(v[j].z, b));
    *reinterpret_cast<uint2*>(out + chunk * kChunkBytes + UnitOffset(first + j * kStride, unit) + four % 4 / 2 * 8) = words;
  }
  ptx::FenceAsyncShared();
  ptx::ClusterWait();
  ptx::SyncThreads(kQueryWritten, kConsumers);
  constexpr int kOwn = kChunks / kBlocks;
  if (t < kChunks && t / kOwn != rank) {
    const uint32_t from = ptx::SharedAddress(out) + static_cast<uint32_t>(t % kOwn * kChunkBytes);
    ptx::BulkCopyRemote(ptx::RemoteAddress(from, t / kOwn), from, kChunkBytes,
                        ptx::RemoteAddress(ptx::SharedAddress(&shared.query_ready), t / kOwn));
  }
  ptx::BarrierWait(&shared.query_ready, 0);
}

// Scores of a tile whose slots come next. Loops that are not unrolled: what runs once is bound by the reading of instructions.
template <int kBlocks>
__device__ void ScoreTile(SplitShared& shared, const SplitFills<kBlocks>& fills, int number, Scores& s) {
#pragma unroll 1
  for (int chunk = 0; chunk < kChunks; ++chunk) {
    const int fill = 2 * number + chunk / kSlotChunks, slot = fill % kSlots, in_slot = chunk % kSlotChunks;
    if (in_slot == 0) WaitForData(&shared.full[slot], static_cast<uint32_t>(fill / kSlots) & 1);
    const auto channels = static_cast<uint32_t>((fills.HalfOf(fill) * kSlotChunks + in_slot) * kChunkBytes);
    const Operand query(ptx::SwizzledOperand(ptx::SharedAddress(shared.query()) + channels));
    const Operand keys(ptx::SwizzledOperand(ptx::SharedAddress(shared.slots[slot]) + static_cast<uint32_t>(in_slot * kChunkBytes)));
    ptx::WgmmaFenceRegisters(s);
    ptx::WgmmaFence();
#pragma unroll
    for (uint32_t step = 0; step < 4; ++step) ptx::WgmmaShared<false>(s, query.At(step * 32), keys.At(step * 32));
    ptx::WgmmaCommit();
  }
  ptx::WgmmaWait<0>();
  ptx::WgmmaFenceRegisters(s);
  // Both warpgroups use a slot of values, so it is free after eight arrivals; here a warp makes two.
  if (threadIdx.x % kWarp < 2) {
    ptx::BarrierArrive(&shared.empty[2 * number % kSlots]);
    ptx::BarrierArrive(&shared.empty[(2 * number + 1) % kSlots]);
  }
}

// Hands a tile's maxima to all blocks, each by another lane of a head's four.
template <int kBlocks>
__device__ void SendBest(SplitShared& shared, int tile, const float (&best)[2]) {
#pragma unroll
  for (int r = static_cast<int>(threadIdx.x) % 4; r < kBlocks; r += 4) {
    ptx::StoreRemote(ptx::RemoteAddress(ptx::SharedAddress(&shared.best[tile][BestOf()]), r), best[0], best[1],
                     ptx::RemoteAddress(ptx::SharedAddress(&shared.best_ready), r));
  }
}

// Stores the tile's weights and sums and has them copied to all blocks.
template <int kBlocks>
__device__ void SendWeights(SplitShared& shared, int rank, int tile, const Weights& a, const float (&sum)[2], int group) {
  TileWeights& out = shared.tiles[tile];
  constexpr float kOnes[2] = {1.0f, 1.0f};
  out.sums[ThreadOfGroup()] = make_float2(sum[0], sum[1]);
  StoreWeights(a, kOnes, out.weights);
  ptx::SyncThreads(kOwnWeights + group, kWarpgroup);
  const int r = ThreadOfGroup();
  if (r == rank) {
    ptx::BarrierArrive(&shared.weights_ready[tile]);
  } else if (r < kBlocks) {
    const uint32_t here = ptx::SharedAddress(&out), ready = ptx::SharedAddress(&shared.weights_ready[tile]);
    ptx::BulkCopyRemote(ptx::RemoteAddress(here, r), here, sizeof(TileWeights), ptx::RemoteAddress(ready, r));
  }
}

// Scores and weights of the warpgroup's tiles: every other one of the block's.
template <int kBlocks>
__device__ void ScoreAndWeigh(SplitShared& shared, const SplitItem<kBlocks>& item, int group) {
  constexpr int kMine = (SplitFills<kBlocks>::kOwnTiles + 1) / 2;
  const SplitFills<kBlocks>& fills = item.fills;
  const int own = fills.own();
  Scores s[kMine];
#pragma unroll
  for (int i = 0; i < kMine; ++i) {
    const int number = 2 * i + group, tile = fills.OwnTile(number);
#pragma unroll
    for (int j = 0; j < 32; ++j) s[i][j] = 0.0f;
    if (number >= own) continue;
    ptx::WgmmaFenceRegisters(s[i]);
    ScoreTile(shared, fills, number, s[i]);
    float best[2];
    Maxima(Valid(tile, item.window, item.latents), item.scale, s[i], best);
    SendBest<kBlocks>(shared, tile, best);
  }
  // A block without a tile says that its query has come, in a place that nobody reads: weights are copied to where queries lay.
  constexpr float kNothing[2] = {};
  if (group == 0 && fills.rank >= fills.tiles) SendBest<kBlocks>(shared, fills.rank, kNothing);
  // All blocks are through with their queries then.
  ptx::BarrierWait(&shared.best_ready, 0);
  float top[2] = {item.sink[0], item.sink[1]};
  int seen = 0;
#pragma unroll
  for (int i = kMine - 1; i >= 0; --i) {
    const int number = 2 * i + group, tile = fills.OwnTile(number);
    if (number >= own) continue;
    for (; seen <= tile; ++seen) {
      const float2 best = shared.best[seen][BestOf()];
      top[0] = Moved(top[0], best.x);
      top[1] = Moved(top[1], best.y);
    }
    Weights a;
    float sum[2];
    Weigh(item.scale, s[i], top, a, sum);
    SendWeights<kBlocks>(shared, fills.rank, tile, a, sum, group);
  }
}

// Waits for a tile's weights, and its values where it is the first of its slot.
template <int kBlocks>
__device__ void WaitForTile(SplitShared& shared, const SplitFills<kBlocks>& fills, int at, int tile) {
  constexpr int kOfSlot = SplitFills<kBlocks>::kTilesOfSlot;
  const int fill = fills.scored() + at / kOfSlot;
  if (at % kOfSlot == 0) ptx::BarrierWait(&shared.full[fill % kSlots], static_cast<uint32_t>(fill / kSlots) & 1);
  ptx::BarrierWait(&shared.weights_ready[tile], 0);
  ptx::FenceAsyncShared();
}

template <int kRuns>
__device__ void FenceRuns(float (&o)[kRuns][32]) {
#pragma unroll
  for (int run = 0; run < kRuns; ++run) ptx::WgmmaFenceRegisters(o[run]);
}

__device__ void FenceWeights(Weights& a) {
#pragma unroll
  for (int step = 0; step < 4; ++step) ptx::WgmmaFenceRegisters(a[step]);
}

// The thread's weights of a tile, times factor and rounded again.
__device__ void LoadWeights(const uint8_t* in, const float (&factor)[2], Weights& a) {
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    const int j = i / 2, h = i % 2;
    const uint32_t pair = *reinterpret_cast<const uint32_t*>(in + UnitOffset(Head() + 8 * h, j) + static_cast<int>(threadIdx.x) % 4 * 4);
    a[j / 2][j % 2 * 2 + h] = ptx::PackBf16x2(__uint_as_float(pair << 16) * factor[h], __uint_as_float(pair & 0xFFFF0000u) * factor[h]);
  }
}

// Begins the products of a tile with the warpgroup's channels.
template <int kBlocks, int kRuns>
__device__ Operand Values(const SplitShared& shared, const SplitFills<kBlocks>& fills, int at, int tile, int group) {
  constexpr int kOfSlot = SplitFills<kBlocks>::kTilesOfSlot;
  const int slot = (fills.scored() + at / kOfSlot) % kSlots, place = kOfSlot == 1 ? 0 : tile % kOfSlot;
  const auto offset = static_cast<uint32_t>((SplitFills<kBlocks>::kSumming * place + group) * kRuns * kChunkBytes);
  return Operand(ptx::SwizzledTransposedOperand(ptx::SharedAddress(shared.slots[slot]) + offset, kChunkBytes));
}
template <int kRuns>
__device__ void StartValues(const SplitShared& shared, int tile, const Operand& values, float (&o)[kRuns][32]) {
  const Operand weights(ptx::SwizzledOperand(ptx::SharedAddress(shared.tiles[tile].weights)));
  FenceRuns(o);
  ptx::WgmmaFence();
#pragma unroll
  for (int step = 0; step < kTileKeys / 16; ++step) {
#pragma unroll
    for (int run = 0; run < kRuns; ++run) {
      ptx::WgmmaShared<true>(o[run], weights.At(step * 32), values.At(step * 2048 + run * kChunkBytes));
    }
  }
  ptx::WgmmaCommit();
}
// The same with weights that are scaled to a later maximum; they stay in registers until the products are done.
template <int kRuns>
__device__ void StartScaledValues(const SplitShared& shared, int tile, const Operand& values, const float (&factor)[2], Weights& a,
                                  float (&o)[kRuns][32]) {
  LoadWeights(shared.tiles[tile].weights, factor, a);
  FenceRuns(o);
  FenceWeights(a);
  ptx::WgmmaFence();
#pragma unroll
  for (int step = 0; step < kTileKeys / 16; ++step) {
#pragma unroll
    for (int run = 0; run < kRuns; ++run) ptx::WgmmaTransposed(o[run], a[step], values.At(step * 2048 + run * kChunkBytes));
  }
  ptx::WgmmaCommit();
}

// A pair's factors of what was summed so far, by head.
struct PairFactors {
  float first[2];   // at the even tile
  float second[2];  // then at the odd one
  float both[2];    // at the odd one, where the even tile was passed over
};
__device__ void MoveOverPair(const SplitShared& shared, int pair, float (&top)[2], PairFactors& factors) {
  const float2 even = shared.best[2 * pair][BestOf()], odd = shared.best[2 * pair + 1][BestOf()];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const float middle = Moved(top[h], h == 0 ? even.x : even.y), last = Moved(middle, h == 0 ? odd.x : odd.y);
    factors.first[h] = Exp2(top[h] - middle);
    factors.second[h] = Exp2(middle - last);
    factors.both[h] = Exp2(top[h] - last);
    top[h] = last;
  }
}

// The warpgroup's channels, summed over all tiles; afterwards the factor of the outputs.
template <bool kRight, int kBlocks, int kRuns>
__device__ void SumValues(SplitShared& shared, const SplitItem<kBlocks>& item, int group, float (&o)[kRuns][32], float (&inverse)[2]) {
  using Fills = SplitFills<kBlocks>;
  const Fills& fills = item.fills;
  constexpr int right = kRight ? 1 : 0;
  float top[2] = {item.sink[0], item.sink[1]};
  float even[2] = {}, odd[2] = {};  // denominators of tiles
  Weights a = {};
  WaitForTile(shared, fills, 0, right);
  for (int pair = 0; pair < fills.tiles / 2; ++pair) {
    PairFactors factors;
    MoveOverPair(shared, pair, top, factors);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int at = 2 * pair + i;
      ptx::WgmmaWait<0>();
      FenceRuns(o);
      if (kRight) FenceWeights(a);
      if (at > 0 && at % Fills::kTilesOfSlot == 0 && threadIdx.x % kWarp < 2 / Fills::kSumming) {
        ptx::BarrierArrive(&shared.empty[(fills.scored() + at / Fills::kTilesOfSlot - 1) % kSlots]);
      }
      float factor[2];
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        factor[h] = i == 0 ? (right != 0 ? factors.both[h] : factors.first[h]) : (right != 0 ? 1.0f : factors.second[h]);
      }
      if (__any_sync(kAllLanes, factor[0] != 1.0f || factor[1] != 1.0f)) {
#pragma unroll
        for (int j = 0; j < kRuns * 32; ++j) o[j / 32][j % 32] *= factor[j / 2 % 2];
      }
      const Operand values = Values<kBlocks, kRuns>(shared, fills, at, at ^ right, group);
      // Right channels take the even tile behind the odd one, with weights scaled to that one's maximum.
      if (kRight && i == 1) {
        StartScaledValues(shared, at ^ right, values, factors.second, a, o);
      } else {
        StartValues(shared, at ^ right, values, o);
      }
      if (at + 1 < fills.tiles) WaitForTile(shared, fills, at + 1, (at + 1) ^ right);
    }
    const float2 even_sum = shared.tiles[2 * pair].sums[ThreadOfGroup()], odd_sum = shared.tiles[2 * pair + 1].sums[ThreadOfGroup()];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      even[h] = (even[h] * factors.first[h] + (h == 0 ? even_sum.x : even_sum.y)) * factors.second[h];
      odd[h] = odd[h] * factors.both[h] + (h == 0 ? odd_sum.x : odd_sum.y);
    }
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) inverse[h] = kKeyRepair / (QuadSum(even[h]) + QuadSum(odd[h]) + Exp2(item.sink[h] - top[h]));
  ptx::WgmmaWait<0>();
  FenceRuns(o);
  if (kRight) FenceWeights(a);
}

// A consumer warpgroup.
template <int kBlocks>
__device__ void ConsumeSplit(const SparseParams& p, SplitShared& shared, int index, int rank, int group) {
  const int first_head = p.FirstHead(index);
  const int64_t row = p.RowOf(index);
  const RowNumbers numbers = {p.op.positions[row], p.op.window_floor[row], 0, p.op.has_latents ? p.op.selected_count[row] : 0, 0};
  SplitItem<kBlocks> item{};
#pragma unroll
  for (int h = 0; h < 2; ++h) item.sink[h] = p.op.sink[first_head + Head() + 8 * h] * kLog2E;
  ShareQuery<kBlocks>(p.op.q + (row * p.op.heads + first_head) * kDim, shared, rank);
  const ItemKeys keys = KeysOf(p, numbers);
  item.window = __shfl_sync(kAllLanes, keys.window, 0);
  item.latents = __shfl_sync(kAllLanes, keys.latents, 0);
  item.fills = {rank, 2 * Pairs(item.window, item.latents)};
  item.scale = p.op.scale * kLog2E * kKeyRepair;
  const auto best = static_cast<uint32_t>(max(item.fills.tiles, kBlocks));
  if (threadIdx.x == 0) ptx::BarrierArriveExpect(&shared.best_ready, best * sizeof(shared.best[0]));
  ScoreAndWeigh(shared, item, group);
  if (group >= SplitFills<kBlocks>::kSumming) {
    ptx::ClusterArrive();
    return;
  }
  constexpr int kRuns = SplitFills<kBlocks>::kRuns;
  float o[kRuns][32] = {};
  float inverse[2];
  if (item.fills.right() != 0) {
    SumValues<true>(shared, item, group, o, inverse);
  } else {
    SumValues<false>(shared, item, group, o, inverse);
  }
  // All that others write here has come.
  ptx::ClusterArrive();
  constexpr int kSumming = SplitFills<kBlocks>::kSumming, kOdd = kSumming == 2 ? kRuns % 2 : 0;
  const int first_chunk = (kSumming * rank + group) * kRuns;
  if (group == kSumming - 1 && rank == kBlocks - 1) {
    StoreOutputs<kRuns * 4, kOdd, true>(p, row, first_head, first_chunk, inverse, o);
  } else if (kOdd != 0 && group == 1) {
    StoreOutputs<kRuns * 4, 1, false>(p, row, first_head, first_chunk, inverse, o);
  } else {
    StoreOutputs<kRuns * 4, 0, false>(p, row, first_head, first_chunk, inverse, o);
  }
}

// By the first warp, a barrier each lane.
template <int kBlocks>
__device__ void InitBarriers(SplitShared& shared, int rank) {
  const int lane = static_cast<int>(threadIdx.x);
  if (lane < kSlots) {
    ptx::BarrierInit(&shared.full[lane], kWarpgroup / kWarp);
    ptx::BarrierInit(&shared.empty[lane], kConsumers / kWarp);
  }
  if (lane < kSplitTiles) ptx::BarrierInit(&shared.weights_ready[lane], 1);
  if (lane == kSplitTiles) ptx::BarrierInit(&shared.query_ready, 1);
  if (lane == kSplitTiles + 1) ptx::BarrierInit(&shared.best_ready, 1);
  ptx::FenceBarrierInit();
  if (lane < kSplitTiles && lane % kBlocks != rank) ptx::BarrierArriveExpect(&shared.weights_ready[lane], sizeof(TileWeights));
  if (lane == kSplitTiles) ptx::BarrierArriveExpect(&shared.query_ready, kChunks * kChunkBytes / kBlocks * (kBlocks - 1));
}

template <int kBlocks>
__global__ void __launch_bounds__(kSplitThreads, 1) SplitAttentionKernel(const __grid_constant__ SparseParams p) {
  extern __shared__ uint8_t raw[];
  auto& shared = *reinterpret_cast<SplitShared*>(raw + (1024 - ptx::SharedAddress(raw) % 1024) % 1024);
  const int index = static_cast<int>(blockIdx.x) / kBlocks, rank = static_cast<int>(blockIdx.x) % kBlocks;
  if (threadIdx.x < kWarp) InitBarriers<kBlocks>(shared, rank);
  ptx::ClusterArrive();
  __syncthreads();
  ptx::GridBegin();
  // Made uniform for ptxas, which otherwise runs one product at a time.
  const int group = __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x) / kWarpgroup, 0);
  if (group < 2) {
    ptx::TakeRegisters<SplitFills<kBlocks>::kConsumerRegisters>();
    ConsumeSplit<kBlocks>(p, shared, index, rank, group);
  } else {
    ptx::ReleaseRegisters<SplitFills<kBlocks>::kProducerRegisters>();
    ProduceSplit<kBlocks>(p, shared, p.RowOf(index), rank);
    ptx::ClusterWait();
    ptx::ClusterArrive();
  }
  ptx::ClusterWait();
}

constexpr int kSplitBytes = sizeof(SplitShared) + 1024;
static_assert(kSplitBytes <= 227 * 1024);

template <int kBlocks>
void AllowSharedMemory(Context& context) {
  context.Record(cudaFuncSetAttribute(SplitAttentionKernel<kBlocks>, cudaFuncAttributeMaxDynamicSharedMemorySize, kSplitBytes),
                 "attention: shared memory");
}

template <int kBlocks>
void Launch(Context& context, const SparseParams& p) {
  AllowSharedMemory<kBlocks>(context);
  LaunchWith(context, {.cluster = kBlocks}, SplitAttentionKernel<kBlocks>, static_cast<unsigned>(p.num_items * kBlocks), kSplitThreads,
             kSplitBytes, p);
}

// Clusters that run at the same time.
template <int kBlocks>
int ClustersAtOnce(Context& context) {
  return context.AskOnce(reinterpret_cast<const void*>(SplitAttentionKernel<kBlocks>), [&context] {
    AllowSharedMemory<kBlocks>(context);
    cudaLaunchAttribute cluster{};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim = {kBlocks, 1, 1};
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(kBlocks);
    config.blockDim = dim3(kSplitThreads);
    config.dynamicSmemBytes = kSplitBytes;
    config.attrs = &cluster;
    config.numAttrs = 1;
    int clusters = 0;
    context.Record(cudaOccupancyMaxActiveClusters(&clusters, SplitAttentionKernel<kBlocks>, &config), "attention: clusters");
    return clusters;
  });
}

}  // namespace

bool SplitAttentionTakes(const SparseParams& p) {
  return Tiles(static_cast<int>(p.op.window)) + (p.op.has_latents ? Tiles(static_cast<int>(p.op.topk)) : 0) <= kSplitTiles &&
         p.op.window <= kSplitProducers && p.op.topk <= kSplitProducers;
}

int SplitAttentionBlocks(Context& context, const SparseParams& p) {
  if (!SplitAttentionTakes(p) || 2 * p.num_items > context.num_sms()) return 1;
  if (8 * p.num_items <= context.num_sms() && p.num_items <= ClustersAtOnce<8>(context)) return 8;
  if (4 * p.num_items <= context.num_sms() && p.num_items <= ClustersAtOnce<4>(context)) return 4;
  return p.num_items <= ClustersAtOnce<2>(context) ? 2 : 1;
}

void SplitAttention(Context& context, const SparseParams& p, int blocks) {
  if (blocks == 8) {
    Launch<8>(context, p);
  } else if (blocks == 4) {
    Launch<4>(context, p);
  } else {
    Launch<2>(context, p);
  }
}

}  // namespace deepinfer::backend::cuda
