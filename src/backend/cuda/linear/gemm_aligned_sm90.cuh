// SPDX-License-Identifier: Apache-2.0
// The main loop of a consumer warpgroup of the matrix kernel (gemm_sm90.cuh) for aligned formats: FP8 products.
#pragma once

#include "backend/cuda/linear/decode_aligned_sm90.cuh"
#include "backend/cuda/linear/gemm_multiply_sm90.cuh"
#include "backend/cuda/linear/gemm_store_sm90.cuh"
#include "backend/cuda/ptx/wgmma_fp8_sm90.cuh"

namespace deepinfer::backend::cuda {

// Products of chunks, which sums up in `sums`. Half a chunk is decoded while the half before is multiplied.
template <typename Traits, int kColumns>
struct AlignedProducts {
  static constexpr int kRegs = kColumns / 2;
  using Decoder = AlignedDecoder<Traits::kFormat>;

  const GemmShared& shared;
  const AlignedPlaces& places;  // in a stage, of the warpgroup's first tile
  bool pair;                    // the warpgroup's rows are gate's and up's
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

  template <int kHalf>
  __device__ void Load(Decoder& decoder, int stage, int tile) const {
    AlignedPlaces at = places;
    at.words += shared.Stage(stage);
    at.scales += shared.Stage(stage);
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

  // Waits for the chunk in `at` and decodes its first half.
  __device__ void Begin(const Ring& at) {
    ptx::BarrierWait(shared.Full(at.stage), at.phase);
    Decoder decoder;
    Load<0>(decoder, at.stage, 0);
    Decode(decoder, a);
  }

  // The products of a tile's chunk, of which `a` has the first half; it gets that of the chunk in `next` for tile next_tile, which is
  // waited for with `wait`. `before`: a stage that is free as soon as the chunk before is multiplied, or negative.
  __device__ void Chunk(int tile, int stage, bool first, int before, Ring next, int next_tile, bool wait) {
    const uint32_t inputs = ptx::SwizzledOperandLow(shared.Stage(stage));
    Decoder decoder;
    Load<1>(decoder, stage, tile);
    Start(inputs, a, first ? 0 : 1);
    WaitForProducts<1>(b);
    if (before >= 0) ReleaseStage(shared, before);
    Decode(decoder, b);
    Start(inputs + 64 / 16, b, 1);
    if (wait) ptx::BarrierWait(shared.Full(next.stage), next.phase);
    Load<0>(decoder, next.stage, next_tile);
    WaitForProducts<1>(a);
    Decode(decoder, a);
  }

  // Until the sums are there.
  __device__ void End() {
    WaitForProducts<0>(b);
    ptx::WgmmaFenceRegisters(sums);
  }
};

// The chunks of an item where a warpgroup multiplies all of its tiles' chunks. A run of chunks is multiplied for each tile in turn,
// and added to the tile's totals.
template <typename Traits, int kColumns>
struct AlignedLoop {
  static constexpr int kOwn = Traits::kOwnTiles;

  AlignedProducts<Traits, kColumns>& products;
  int chunks;
  Ring& ring;
  float (&totals)[kOwn][kColumns / 2];

  // A run of n chunks, of which `left` follow, these included, for tile kTile.
  template <int kTile>
  __device__ void Tile(Ring& at, int n, int left) {
    constexpr bool kLastTile = kTile == kOwn - 1;
    const int num_stages = products.shared.memory.num_stages;
#pragma unroll 1
    for (int chunk = 0; chunk < n; ++chunk) {
      const int stage = at.stage, before = kLastTile && chunk > 0 ? at.Before(num_stages) : -1;
      at.Next(num_stages);
      // What comes next: a chunk of this run, the run's first for the next tile, or the next run's first.
      const bool in_run = chunk + 1 < n;
      products.Chunk(kTile, stage, chunk == 0, before, in_run || kLastTile ? at : ring, in_run ? kTile : (kTile + 1) % kOwn,
                     in_run ? kTile == 0 : kLastTile && left > n);
    }
    products.End();
#pragma unroll
    for (int r = 0; r < kColumns / 2; ++r) totals[kTile][r] += products.sums[r];
  }

  __device__ void Run() {
#pragma unroll
    for (int tile = 0; tile < kOwn; ++tile) {
#pragma unroll
      for (int r = 0; r < kColumns / 2; ++r) totals[tile][r] = 0.0f;
    }
    products.Begin(ring);
    for (int left = chunks; left > 0; left -= kPromoteChunks) {
      const int n = min(left, kPromoteChunks);
      if constexpr (kOwn == 2) {
        Ring at = ring;
        Tile<0>(at, n, left);
      }
      Tile<kOwn - 1>(ring, n, left);
      ReleaseStage(products.shared, ring.Before(products.shared.memory.num_stages));
    }
  }
};

// The chunks of an item where kSplit warpgroups take the runs of a tile in turn, each from stages of its own: the totals go round in
// shared memory, and each warpgroup adds its run's sums to them. Run returns whether this one has the totals in the end, as its sums.
template <typename Traits, int kColumns>
struct RelayLoop {
  static constexpr int kSplit = Traits::kSplit;

  AlignedProducts<Traits, kColumns>& products;
  int chunks;
  Ring& ring;
  int member;         // of the tile's warpgroups
  int first_barrier;  // one for each of them
  uint32_t shelf;     // the tile's totals: of this thread, a register each kWarpgroup floats

  // A run of n chunks; `more`: this warpgroup has another run.
  __device__ void Products(int n, bool more) {
    const int num_stages = products.shared.memory.num_stages;
#pragma unroll 1
    for (int chunk = 0; chunk < n; ++chunk) {
      const int stage = ring.stage, before = chunk > 0 ? ring.Before(num_stages) : -1;
      ring.Next(num_stages);
      products.Chunk(0, stage, chunk == 0, before, ring, 0, chunk + 1 < n || more);
    }
    products.End();
    ReleaseStage(products.shared, ring.Before(num_stages));
  }

  __device__ void Add(bool first, bool last) {
    const auto place = [&](int r) { return shelf + static_cast<uint32_t>(r * kWarpgroup * 4); };
    auto& sums = products.sums;
    if (first) {
#pragma unroll
      for (float& sum : sums) sum += 0.0f;  // as all others are added to something
    } else {
      ptx::SyncThreads(first_barrier + member, 2 * kWarpgroup);
#pragma unroll
      for (int r = 0; r < kColumns / 2; ++r) sums[r] = ptx::LoadShared(place(r)) + sums[r];
    }
    if (last) return;
#pragma unroll
    for (int r = 0; r < kColumns / 2; ++r) ptx::StoreShared(place(r), sums[r]);
    ptx::ArriveThreads(first_barrier + (member + 1) % kSplit, 2 * kWarpgroup);
  }

  __device__ bool Run() {
    bool has_totals = false;
    int chunk = member * kPromoteChunks;
    if (chunk < chunks) products.Begin(ring);
    for (; chunk < chunks; chunk += kSplit * kPromoteChunks) {
      const int n = min(chunks - chunk, kPromoteChunks);
      Products(n, chunk + kSplit * kPromoteChunks < chunks);
      has_totals = chunk + n == chunks;
      Add(chunk == 0, has_totals);
    }
    return has_totals;
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
  int warpgroup;
  AlignedPlaces places;
  Ring ring = {};
  int items = 0;  // so far
  // Operands in the loops of all widths: ptxas would give each loop registers of its own.
  Fragments a = {};
  Fragments b = {};

  // The first of the block's tiles that is this warpgroup's.
  __device__ static int FirstTile(int warpgroup) { return warpgroup / Traits::kSplit * Traits::kOwnTiles; }

  template <int kColumns>
  __device__ void RunItem(int index) {
    AlignedProducts<Traits, kColumns> products{shared, places, p.epilogue == Epilogue::kSwiGlu, a, b};
    if constexpr (Traits::kSplit == 1) {
      float totals[Traits::kOwnTiles][kColumns / 2];
      AlignedLoop<Traits, kColumns>{products, p.num_chunks, ring, totals}.Run();
      // Found anew: an item takes registers that the main loop needs.
      const GemmItem item = GemmItem::Find(p, Anew(index));
#pragma unroll
      for (int i = 0; i < Traits::kOwnTiles; ++i) StoreAligned(p, item, FirstTile(warpgroup) + i, Traits::kChunk, totals[i]);
    } else {
      // Two sets of totals and barriers, in turn: those who still have an item's last run in hand are one item behind at most.
      const int turn = items++ % 2, tile = warpgroup / Traits::kSplit;
      const uint32_t shelf = shared.Shelf(turn * Traits::kTiles + tile) + threadIdx.x % kWarpgroup * 4;
      const bool has_totals = RelayLoop<Traits, kColumns>{products, p.num_chunks, ring, warpgroup % Traits::kSplit,
                                                         1 + turn * Traits::kWarpgroups + tile * Traits::kSplit, shelf}.Run();
      // With fewer runs nobody would have to wait for those.
      if (p.num_chunks <= kPromoteChunks * Traits::kSplit) ptx::SyncThreads(1 + 2 * Traits::kWarpgroups, Traits::kWarpgroups * kWarpgroup);
      if (has_totals) StoreAligned(p, GemmItem::Find(p, Anew(index)), FirstTile(warpgroup), Traits::kChunk, products.sums);
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
