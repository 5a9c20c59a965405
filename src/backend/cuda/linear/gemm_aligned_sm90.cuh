// SPDX-License-Identifier: Apache-2.0
// The main loop of a consumer warpgroup of the matrix kernel (gemm_sm90.cuh) for aligned formats: FP8 products.
#pragma once

#include "backend/cuda/linear/decode_aligned_sm90.cuh"
#include "backend/cuda/linear/gemm_multiply_sm90.cuh"
#include "backend/cuda/linear/gemm_store_sm90.cuh"
#include "backend/cuda/ptx/wgmma_fp8_sm90.cuh"

namespace deepinfer::backend::cuda {

// The chunks of an item. A run of chunks is multiplied for each of the warpgroup's tiles in turn, from zero, and added to the tile's
// totals. Half a chunk is decoded while the half before is multiplied.
template <typename Traits, int kColumns>
struct AlignedLoop {
  static constexpr int kOwn = Traits::kOwnTiles, kRegs = kColumns / 2;
  using Decoder = AlignedDecoder<Traits::kFormat>;

  const GemmShared& shared;
  const AlignedPlaces& places;  // in a stage, of the warpgroup's first tile
  bool pair;                    // the warpgroup's rows are gate's and up's
  int chunks;
  Ring& ring;
  float (&totals)[kOwn][kRegs];
  Fragments& a;
  Fragments& b;
  float sums[kRegs] = {};

  __device__ void Start(uint32_t inputs, const Fragments& half, uint32_t add) {
    ptx::WgmmaFenceRegisters(sums);
    ptx::WgmmaFence();
    ptx::WgmmaFp8<kColumns>(sums, half[0], ptx::SwizzledOperandOf(inputs), add);
    ptx::WgmmaFp8<kColumns>(sums, half[1], ptx::SwizzledOperandOf(inputs + 2), 1);
    ptx::WgmmaCommit();
  }

  template <int kPending>
  __device__ void Wait(Fragments& half) {
    ptx::WgmmaWait<kPending>();
    ptx::WgmmaFenceRegisters(half[0]);
    ptx::WgmmaFenceRegisters(half[1]);
  }

  template <int kHalf>
  __device__ void Load(Decoder& decoder, uint32_t stage, int tile) const {
    AlignedPlaces at = places;
    at.words += stage;
    at.scales += stage;
    if (tile > 0) {
      // With gate and up the second tile is the other parity's rows of the same two chunks.
      at.words += pair ? Decoder::kParityWords : Traits::kChunk;
      at.scales += pair ? Decoder::kParityScales : Traits::kChunk;
    }
    decoder.template Load<kHalf>(at);
  }

  __device__ static void Decode(const Decoder& decoder, Fragments& half) {
    decoder.Decode(half);
    ptx::WgmmaFenceRegisters(half[0]);
    ptx::WgmmaFenceRegisters(half[1]);
  }

  // The products of tile kTile and chunk `chunk` of a run of n, of which `left` follow, these included; `a` has the chunk's first half
  // and gets that of what comes next.
  template <int kTile>
  __device__ void Chunk(Ring& at, int chunk, int n, int left) {
    constexpr bool kLastTile = kTile == kOwn - 1;
    const uint32_t stage = shared.Stage(at.stage), inputs = ptx::SwizzledOperandLow(stage);
    Decoder decoder;
    Load<1>(decoder, stage, kTile);
    Start(inputs, a, static_cast<uint32_t>(chunk));
    Wait<1>(b);
    if (kLastTile && chunk > 0) ReleaseStage(shared, at.Before(shared.memory.num_stages));
    Decode(decoder, b);
    Start(inputs + 64 / 16, b, 1);
    at.Next(shared.memory.num_stages);
    // What comes next: a chunk of this run, the run's first for the next tile, or the next run's first.
    const bool in_run = chunk + 1 < n;
    const Ring& next = in_run || kLastTile ? at : ring;
    if (in_run ? kTile == 0 : kLastTile && left > n) ptx::BarrierWait(shared.Full(next.stage), next.phase);
    Load<0>(decoder, shared.Stage(next.stage), in_run ? kTile : (kTile + 1) % kOwn);
    Wait<1>(a);
    Decode(decoder, a);
  }

  template <int kTile>
  __device__ void Tile(Ring& at, int n, int left) {
#pragma unroll 1
    for (int chunk = 0; chunk < n; ++chunk) Chunk<kTile>(at, chunk, n, left);
    Wait<0>(b);
    ptx::WgmmaFenceRegisters(sums);
#pragma unroll
    for (int r = 0; r < kRegs; ++r) totals[kTile][r] += sums[r];
  }

  // A run of n chunks.
  __device__ void RunOf(int n, int left) {
    if constexpr (kOwn == 2) {
      Ring at = ring;
      Tile<0>(at, n, left);
    }
    Tile<kOwn - 1>(ring, n, left);
    ReleaseStage(shared, ring.Before(shared.memory.num_stages));
  }

  __device__ void Run() {
#pragma unroll
    for (int tile = 0; tile < kOwn; ++tile) {
#pragma unroll
      for (int r = 0; r < kRegs; ++r) totals[tile][r] = 0.0f;
    }
#pragma unroll
    for (int r = 0; r < kRegs; ++r) sums[r] = 0.0f;
    ptx::BarrierWait(shared.Full(ring.stage), ring.phase);
    Decoder decoder;
    Load<0>(decoder, shared.Stage(ring.stage), 0);
    Decode(decoder, a);
    for (int left = chunks; left > 0; left -= kPromoteChunks) RunOf(min(left, kPromoteChunks), left);
  }
};

// The places in a stage of tile `tile` of the block: a chunk each behind the inputs, [tile]. With gate and up a warpgroup has
// the rows of one parity in gate's chunk, the even one, and in up's.
template <typename Traits>
__device__ AlignedPlaces FindPlaces(const GemmParams& p, const GemmShared& shared, int tile) {
  using Decoder = AlignedDecoder<Traits::kFormat>;
  const bool pair = p.epilogue == Epilogue::kSwiGlu;
  const int t = static_cast<int>(threadIdx.x) % kWarpgroup, parity = pair ? tile % 2 : 0;
  const auto chunk = static_cast<uint32_t>(shared.InputBytes(Traits::kParts) + (tile - parity) * Traits::kChunk);
  return {.words = chunk + static_cast<uint32_t>(t * 16) + static_cast<uint32_t>(parity) * Decoder::kParityWords,
          .scales = chunk + Decoder::ScalePlace(t) + static_cast<uint32_t>(parity) * Decoder::kParityScales,
          .odd_words = pair ? Traits::kChunk : Decoder::kParityWords,
          .odd_scales = pair ? Traits::kChunk : Decoder::kParityScales};
}

// What a consumer warpgroup has in hand.
template <typename Traits>
struct AlignedConsumer {
  using Decoder = AlignedDecoder<Traits::kFormat>;

  const GemmParams& p;
  const GemmShared& shared;
  int first_tile;  // of the block's
  AlignedPlaces places;
  Ring ring = {};
  // Operands in the loops of all widths: ptxas would give each loop registers of its own.
  Fragments a = {};
  Fragments b = {};

  template <int kColumns>
  __device__ void RunItem(int index) {
    float totals[Traits::kOwnTiles][kColumns / 2];
    const bool pair = p.epilogue == Epilogue::kSwiGlu;
    AlignedLoop<Traits, kColumns>{shared, places, pair, p.num_chunks, ring, totals, a, b}.Run();
    // Found anew: an item takes registers that the main loop needs.
    const GemmItem item = GemmItem::Find(p, Anew(index));
#pragma unroll
    for (int i = 0; i < Traits::kOwnTiles; ++i) {
      const int tile = first_tile + i;
      if (item.Tile(p, tile) < 0) continue;
      ScaleSums(p, item, tile, Traits::kChunk, totals[i]);
      if (pair) {
        StoreSwiGluFast(p, item, tile, totals[i]);
      } else {
        StoreRows(p, item, tile, totals[i]);
      }
    }
  }

  template <int kColumns, int... kMore>
  __device__ void RunColumns(Widths<kColumns, kMore...>, int index, int rows) {
    if constexpr (sizeof...(kMore) == 0) {
      RunItem<kColumns>(index);
    } else if (rows <= kColumns) {
      RunItem<kColumns>(index);
    } else {
      RunColumns(Widths<kMore...>{}, index, rows);
    }
  }

  __device__ void Run(int num_items) {
    for (int index = static_cast<int>(blockIdx.x); index < num_items; index += static_cast<int>(gridDim.x)) {
      const int rows = __shfl_sync(kAllLanes, GemmItem::Find(p, index).rows, 0);
      if (rows > 0) RunColumns(typename Traits::Columns{}, index, rows);
    }
  }
};

}  // namespace deepinfer::backend::cuda
