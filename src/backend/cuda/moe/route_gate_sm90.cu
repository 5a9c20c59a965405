// SPDX-License-Identifier: Apache-2.0
// A block multiplies some tiles of 64 experts with a tile of rows, chunk after chunk of 64 inputs: a warpgroup a tile, weights as A
// operand out of the packed matrix (linear/packed.h), inputs split into parts on the way as B operand. Every thread splits and
// multiplies what it copied itself, so a chunk needs one barrier. Inputs of a chunk are split while the one before is multiplied.
#include <algorithm>

#include "backend/cuda/device/parts.cuh"
#include "backend/cuda/launch_after.h"
#include "backend/cuda/linear/packed.h"
#include "backend/cuda/moe/route_gate.h"
#include "backend/cuda/ptx/grid.cuh"
#include "backend/cuda/ptx/pipeline.cuh"
#include "backend/cuda/ptx/wgmma_sm90.cuh"

namespace deepinfer::backend::cuda {
namespace {

constexpr int kSliceChunks = 4;
constexpr int kStages = 4;
constexpr int kParts = 3;
constexpr int kSteps = kChunkCols / kStepCols;
constexpr int kWeightBytes = ChunkBytes(WeightFormat::kBf16);
constexpr int kUnits = kChunkCols / kUnit;  // of a row of a chunk

struct GateParams {
  const float* x;        // [rows, cols]
  const uint8_t* gate;   // packed
  int rows, cols, experts;
  int num_tiles, num_chunks;
  int block_chunks;      // kSliceChunks: a slice of its own for each blockIdx.y; num_chunks: one block takes all slices
  float* sums;           // [gridDim.y, rows, experts]
};

template <int kTiles, int kTokens>
struct Shared {
  struct Stage {
    float x[kTokens][kChunkCols];
    uint8_t weights[kTiles][kWeightBytes];
  };
  uint8_t inputs[2][kParts][kTokens * kChunkCols * 2];  // atoms
  Stage stages[kStages];
};

// Calls visit(row, unit) for each unit of eight inputs of the row tile that this thread looks after.
template <int kTiles, int kTokens, typename Visit>
__device__ void ForUnits(const Visit& visit) {
#pragma unroll
  for (int at = static_cast<int>(threadIdx.x); at < kTokens * kUnits; at += kTiles * kWarpgroup) visit(at / kUnits, at % kUnits);
}

// Starts the copies of this thread's part of the weights of a chunk.
template <int kTiles, int kTokens>
__device__ void StartWeights(const GateParams& p, int chunk, typename Shared<kTiles, kTokens>::Stage& stage) {
  const int t = static_cast<int>(threadIdx.x) % kWarpgroup, of_block = static_cast<int>(threadIdx.x) / kWarpgroup;
  const int tile = min(static_cast<int>(blockIdx.x) * kTiles + of_block, p.num_tiles - 1);
  const uint8_t* from = p.gate + (int64_t{tile} * p.num_chunks + chunk) * kWeightBytes + 16 * t;
#pragma unroll
  for (int i = 0; i < kWeightBytes; i += 16 * kWarpgroup) ptx::CopyUnit(&stage.weights[of_block][i + 16 * t], from + i, 16);
}

// The same of the inputs; rows and inputs that are not there are zeros.
template <int kTiles, int kTokens>
__device__ void StartInputs(const GateParams& p, int chunk, typename Shared<kTiles, kTokens>::Stage& stage) {
  const int first_row = static_cast<int>(blockIdx.z) * kTokens;
  ForUnits<kTiles, kTokens>([&](int row, int unit) {
    const bool is_row = first_row + row < p.rows;
    const float* x = p.x + int64_t{is_row ? first_row + row : 0} * p.cols;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int in_chunk = unit * kUnit + 4 * half, col = chunk * kChunkCols + in_chunk;
      const bool is_there = is_row && col < p.cols;
      ptx::CopyUnit(&stage.x[row][in_chunk], is_there ? x + col : x, is_there ? 16 : 0);
    }
  });
}

// Splits this thread's units of a stage into parts.
template <int kTiles, int kTokens>
__device__ void SplitInputs(const typename Shared<kTiles, kTokens>::Stage& stage, uint8_t (&inputs)[kParts][kTokens * kChunkCols * 2]) {
  ForUnits<kTiles, kTokens>([&](int row, int unit) {
    const auto* x = reinterpret_cast<const float4*>(stage.x[row]);
    const float4 a = x[2 * unit], b = x[2 * unit + 1];
    float v[kUnit] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
    const int at = row / kGroupRows * kAtomBytes + row % kGroupRows * 128 + (unit ^ row % kGroupRows) * 16;
#pragma unroll
    for (int part = 0; part < kParts; ++part) *reinterpret_cast<uint4*>(&inputs[part][at]) = TakePart(v);
  });
}

using Operands = uint32_t[kSteps][4];

__device__ void ReadWeights(const uint8_t* weights, Operands& a) {
  const uint8_t* words = weights + 16 * (threadIdx.x % kWarpgroup);
#pragma unroll
  for (int parity = 0; parity < 2; ++parity) {
#pragma unroll
    for (int pair = 0; pair < kSteps / 2; ++pair) {
      const uint4 four = ptx::LoadShared4(ptx::SharedAddress(words + parity * (kWeightBytes / 2) + pair * (kWeightBytes / 4)));
      a[2 * pair][parity] = four.x;
      a[2 * pair][parity + 2] = four.y;
      a[2 * pair + 1][parity] = four.z;
      a[2 * pair + 1][parity + 2] = four.w;
    }
  }
}

// Starts the products of a chunk.
template <int kTokens>
__device__ void Multiply(const uint8_t (&inputs)[kParts][kTokens * kChunkCols * 2], Operands& a, float (&sums)[kTokens / 2]) {
  const uint32_t operand = __shfl_sync(0xFFFFFFFFu, ptx::SwizzledOperandLow(ptx::SharedAddress(inputs)), 0);
#pragma unroll
  for (int step = 0; step < kSteps; ++step) ptx::WgmmaFenceRegisters(a[step]);
  ptx::WgmmaFenceRegisters(sums);
  ptx::WgmmaFence();
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      ptx::Wgmma<kTokens>(sums, a[step], ptx::SwizzledOperandOf(operand + part * (sizeof(inputs[0]) / 16) + step * 2));
    }
  }
  ptx::WgmmaCommit();
}

// Behind it the products are over.
template <int kTokens>
__device__ void Wait(Operands& a, float (&sums)[kTokens / 2]) {
  ptx::WgmmaWait();
  ptx::WgmmaFenceRegisters(sums);
#pragma unroll
  for (int step = 0; step < kSteps; ++step) ptx::WgmmaFenceRegisters(a[step]);
}

template <int kTokens>
__device__ void Store(const GateParams& p, int tile, const float (&totals)[kTokens / 2]) {
  const int t = static_cast<int>(threadIdx.x) % kWarpgroup, first_expert = tile * kTileRows + t / 32 * 16 + t % 32 / 4;
  const int first_row = static_cast<int>(blockIdx.z) * kTokens + t % 4 * 2;
#pragma unroll
  for (int i = 0; i < kTokens / 2; ++i) {
    const int row = first_row + i / 4 * 8 + i % 2, expert = first_expert + i / 2 % 2 * 8;
    if (row < p.rows && expert < p.experts) p.sums[(int64_t{blockIdx.y} * p.rows + row) * p.experts + expert] = totals[i];
  }
}

// grid (tiles of experts / kTiles, slices or 1, tiles of rows)
template <int kTiles, int kTokens>
__global__ void __launch_bounds__(kTiles * kWarpgroup) GateKernel(const __grid_constant__ GateParams p) {
  extern __shared__ __align__(1024) uint8_t raw_shared[];
  auto& shared = *reinterpret_cast<Shared<kTiles, kTokens>*>(raw_shared);
  ptx::GridTrigger();
  const int first = static_cast<int>(blockIdx.y) * p.block_chunks, count = min(p.num_chunks - first, p.block_chunks);
  const int tile_of_block = static_cast<int>(threadIdx.x) / kWarpgroup;
  for (int i = 0; i < min(kStages, count); ++i) StartWeights<kTiles, kTokens>(p, first + i, shared.stages[i]);
  ptx::GridWait();
#pragma unroll 1
  for (int i = 0; i < kStages; ++i) {
    if (i < count) StartInputs<kTiles, kTokens>(p, first + i, shared.stages[i]);
    ptx::EndCopyGroup();
  }
  ptx::WaitForCopyGroups<kStages - 1>();
  SplitInputs<kTiles, kTokens>(shared.stages[0], shared.inputs[0]);
  float sums[kTokens / 2] = {}, totals[kTokens / 2] = {};
#pragma unroll 1
  for (int i = 0; i < count; ++i) {
    auto& stage = shared.stages[i % kStages];
    Operands a;
    ReadWeights(stage.weights[tile_of_block], a);
    ptx::FenceAsyncShared();
    __syncthreads();
    Multiply<kTokens>(shared.inputs[i % 2], a, sums);
    // Behind the fence, which waits for loads on their way.
    if (i + kStages < count) {
      StartWeights<kTiles, kTokens>(p, first + i + kStages, stage);
      StartInputs<kTiles, kTokens>(p, first + i + kStages, stage);
    }
    ptx::EndCopyGroup();
    // All warpgroups are done with the chunk before, whose place this is.
    ptx::WaitForCopyGroups<kStages - 1>();
    if (i + 1 < count) SplitInputs<kTiles, kTokens>(shared.stages[(i + 1) % kStages], shared.inputs[(i + 1) % 2]);
    Wait<kTokens>(a, sums);
    if ((i + 1) % kSliceChunks == 0 || i + 1 == count) {
#pragma unroll
      for (int r = 0; r < kTokens / 2; ++r) {
        totals[r] += sums[r];
        sums[r] = 0.0f;
      }
    }
  }
  const int tile = static_cast<int>(blockIdx.x) * kTiles + tile_of_block;
  if (tile < p.num_tiles) Store<kTokens>(p, tile, totals);
}

template <int kTiles, int kTokens>
void Launch(Context& context, GateParams p, int slices) {
  constexpr int kBytes = sizeof(Shared<kTiles, kTokens>);
  static_assert(kBytes <= 227 * 1024);
  context.Record(cudaFuncSetAttribute(GateKernel<kTiles, kTokens>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes),
                 "router: shared memory");
  const dim3 grid(static_cast<unsigned>((p.num_tiles + kTiles - 1) / kTiles), static_cast<unsigned>(slices),
                  static_cast<unsigned>((p.rows + kTokens - 1) / kTokens));
  LaunchAfter(context, GateKernel<kTiles, kTokens>, grid, kTiles * kWarpgroup, kBytes, p);
}

}  // namespace

bool MultiplyGateTakes(const RouteParams& p) { return p.gate.format == WeightFormat::kBf16 && p.gate.cols % 4 == 0; }

GateProducts MultiplyGate(Context& context, const RouteParams& p) {
  constexpr int64_t kManyRows = 2560;  // from here on blocks are plenty without slices
  GateParams gate{};
  gate.x = p.x;
  gate.gate = static_cast<const uint8_t*>(p.gate.data);
  gate.rows = static_cast<int>(p.rows);
  gate.cols = static_cast<int>(p.gate.cols);
  gate.experts = static_cast<int>(p.gate.rows);
  gate.num_tiles = static_cast<int>(NumTiles(p.gate.rows));
  gate.num_chunks = static_cast<int>(NumChunks(p.gate.format, p.gate.cols));
  gate.block_chunks = p.rows < kManyRows ? kSliceChunks : gate.num_chunks;
  const int slices = (gate.num_chunks + gate.block_chunks - 1) / gate.block_chunks;
  gate.sums = context.Take<float>(slices * p.rows * p.gate.rows);
  if (gate.sums == nullptr) return {};
  if (p.rows <= 16) {
    Launch<1, 16>(context, gate, slices);
  } else if (p.rows <= 64) {
    Launch<1, 32>(context, gate, slices);
  } else {
    Launch<3, 64>(context, gate, slices);
  }
  return {gate.sums, slices};
}

}  // namespace deepinfer::backend::cuda
