// SPDX-License-Identifier: Apache-2.0
// How the rows of a batch are shared out to the blocks of the score kernel. Neighbouring rows of one request that score the
// same items make a group, whose first row is its leader; a group has tiles of 128 items, as many as its farthest row needs.
// All tiles of all groups stand in one line, and each block takes an equal run of it: whatever the rows look like, the load is
// even. But to begin a group costs a block as much as a few tiles: where runs that are longer by no more than that let each block have
// part of one group alone, groups are divided so. Every block works this out for itself.
#pragma once

#include "backend/cuda/device/reduce.cuh"
#include "backend/cuda/index/score.cuh"

namespace deepinfer::backend::cuda {

inline constexpr int kScoreRows = 8;
inline constexpr int kTileItems = 128;
inline constexpr int kScoreThreads = 512;
static_assert(kBatchRowsMax == 2 * kScoreThreads);
inline constexpr int kStartTiles = 4;  // what beginning a group costs

struct ScorePlan {
  int size[kBatchRowsMax];          // rows of the group that begins here, 0 elsewhere
  int items[kBatchRowsMax];         // of the group that begins here
  int tiles_before[kBatchRowsMax];  // in the line
  int warps[3][kScoreThreads / kWarp];
  int first;       // the group in which this block's run begins
  int begin, end;  // the run

  __device__ int Tiles(int leader) const { return (items[leader] + kTileItems - 1) / kTileItems; }
};

// The largest value of the threads before this one, none of which is negative.
__device__ inline int MaxBefore(int value, int* warps) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
#pragma unroll
  for (int offset = 1; offset < kWarp; offset *= 2) {
    const int before = __shfl_up_sync(kAllLanes, value, offset);
    if (lane >= offset) value = max(value, before);
  }
  if (lane == kWarp - 1) warps[warp] = value;
  __syncthreads();
  const int of_warps = __reduce_max_sync(kAllLanes, lane < warp ? warps[lane] : 0), of_lanes = __shfl_up_sync(kAllLanes, value, 1);
  return lane == 0 ? of_warps : max(of_warps, of_lanes);
}

// Finds this block's run; thread t knows the tiles of rows 2 t and 2 t + 1 as leaders.
__device__ inline void FindRun(ScorePlan& plan, const int (&tiles)[2], int total) {
  const int blocks = static_cast<int>(gridDim.x), block = static_cast<int>(blockIdx.x), first = 2 * static_cast<int>(threadIdx.x);
  const int most = (total + blocks - 1) / blocks + kStartTiles;
  const int parts[2] = {(tiles[0] + most - 1) / most, (tiles[1] + most - 1) / most};
  int all;
  const int reach = SumThrough<kScoreThreads>(parts[0] + parts[1], plan.warps[2], &all);
  const int begin = static_cast<int>(int64_t{total} * block / blocks), end = static_cast<int>(int64_t{total} * (block + 1) / blocks);
  if (threadIdx.x == 0) {
    plan.begin = all > blocks ? begin : 0;
    plan.end = all > blocks ? end : 0;
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int at = plan.tiles_before[first + i], part = block - (reach - parts[1] - (i == 0 ? parts[0] : 0));
    if (all > blocks) {
      if (at <= begin && begin < at + tiles[i]) plan.first = first + i;
    } else if (part >= 0 && part < parts[i]) {
      plan.first = first + i;
      plan.begin = at + static_cast<int>(int64_t{tiles[i]} * part / parts[i]);
      plan.end = at + static_cast<int>(int64_t{tiles[i]} * (part + 1) / parts[i]);
    }
  }
  __syncthreads();
}

// Fills the plan. Each thread looks after two neighbouring rows.
__device__ inline void MakePlan(const IndexSelectParams& p, const IndexBatch& batch, ScorePlan& plan) {
  const int rows = static_cast<int>(batch.rows), first = 2 * static_cast<int>(threadIdx.x);
  int items[2] = {}, start[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = first + i;
    const int64_t at = batch.first_row + row;
    if (row < rows) items[i] = Items(p, at);
    plan.size[row] = plan.items[row] = 0;
    const bool starts = row == 0 || row >= rows || p.candidates == Candidates::kRestrict || p.requests[at] != p.requests[at - 1];
    start[i] = starts ? row : i == 0 ? 0 : start[0];
  }
  // The first row of each row's request in this batch: the last start up to it.
  const int before = MaxBefore(start[1], plan.warps[0]);
  start[0] = max(start[0], before);
  start[1] = max(start[1], start[0]);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = first + i, leader = start[i] + (row - start[i]) / kScoreRows * kScoreRows;
    if (row < rows) {
      atomicAdd(&plan.size[leader], 1);
      atomicMax(&plan.items[leader], items[i]);
    }
  }
  __syncthreads();
  const int tiles[2] = {plan.Tiles(first), plan.Tiles(first + 1)};
  int total;
  const int reach = SumThrough<kScoreThreads>(tiles[0] + tiles[1], plan.warps[1], &total);
  plan.tiles_before[first + 1] = reach - tiles[1];
  plan.tiles_before[first] = reach - tiles[1] - tiles[0];
  FindRun(plan, tiles, total);
}

}  // namespace deepinfer::backend::cuda
