// SPDX-License-Identifier: Apache-2.0
// The main loop of a consumer warpgroup of the matrix kernel (gemm_sm90.cuh).
#pragma once

#include "backend/cuda/linear/decode_sm90.cuh"
#include "backend/cuda/linear/gemm_shared_sm90.cuh"
#include "backend/cuda/ptx/mma.cuh"
#include "backend/cuda/ptx/pipeline.cuh"
#include "backend/cuda/ptx/wgmma_sm90.cuh"

namespace deepinfer::backend::cuda {

// Where a thread finds its weights in a stage: the words and scales of its even and of its odd operand registers in the first chunk.
struct StagePlaces {
  ChunkPlaces first;

  template <typename Traits>
  __device__ static StagePlaces Find(const GemmParams& p, const GemmShared& shared, int warpgroup) {
    using Decoder = ChunkDecoder<Traits::kFormat>;
    const bool pair = p.epilogue == Epilogue::kSwiGlu;
    const int t = static_cast<int>(threadIdx.x) % kWarpgroup, parity = pair ? warpgroup % 2 : 0;
    const auto slot_bytes = static_cast<uint32_t>(shared.memory.stage_chunks * Traits::kChunk);
    const uint32_t slot = static_cast<uint32_t>(shared.InputBytes(Traits::kParts)) + static_cast<uint32_t>(warpgroup - parity) * slot_bytes;
    const uint32_t odd_slot = slot + (pair ? slot_bytes : 0);
    const int odd_parity = pair ? parity : 1;
    return {{slot + Decoder::WordPlace(t, parity), odd_slot + Decoder::WordPlace(t, odd_parity),
             slot + Decoder::ScalePlace(t, parity), odd_slot + Decoder::ScalePlace(t, odd_parity)}};
  }

  // In a chunk that lies `at` further on.
  __device__ ChunkPlaces At(uint32_t at) const {
    return {first.even + at, first.odd + at, first.even_scales + at, first.odd_scales + at};
  }
};

// A warp's reads of a stage are over: its place may be filled again. Its lanes have met since the last of them.
__device__ inline void ReleaseStage(const GemmShared& shared, int stage) {
  if (threadIdx.x % kWarp < kReleasingLanes) ptx::BarrierArrive(shared.Empty(stage));
}

// The chunks of a span for few tokens, by products of a warp: they take B from registers and no part in what the warpgroup's
// products cost besides (descriptors, waiting for one another), and give the same bits.
template <typename Traits, int kColumns>
struct FewLoop {
  static constexpr int kGroups = kColumns / kGroupRows;

  const GemmShared& shared;
  const StagePlaces& places;
  int chunks;
  Ring& ring;
  float (&sums)[kColumns / 2];
  float d[kGroups][4] = {};

  // `inputs`: where this lane's row of the four matrices of 8 x 8 in the first 32 inputs of the chunk lies. The other 32 are the
  // units 4 to 7 of a row, which are swizzled with its number: 64 bytes away in either direction.
  template <int kHalf>
  __device__ void Half(const ChunkDecoder<Traits::kFormat>& decoder, uint32_t inputs) {
    uint32_t b[Traits::kParts][kGroups][4];
#pragma unroll
    for (int part = 0; part < Traits::kParts; ++part) {
#pragma unroll
      for (int group = 0; group < kGroups; ++group) {
        const auto further = static_cast<uint32_t>(part * shared.memory.part_bytes + group * kAtomBytes);
        ptx::LoadMatrices((inputs ^ kHalf * 64) + further, b[part][group]);
      }
    }
    Fragments a;
    decoder.template Decode<kHalf>(a);
#pragma unroll
    for (int step = 0; step < 2; ++step) {
#pragma unroll
      for (int part = 0; part < Traits::kParts; ++part) {
#pragma unroll
        for (int group = 0; group < kGroups; ++group) ptx::Mma(d[group], a[step], b[part][group][2 * step], b[part][group][2 * step + 1]);
      }
    }
  }

  // The words of the next chunk are on their way while one is multiplied. `row`: of the first chunk's inputs, as above.
  template <int kCount>
  __device__ void Chunks(uint32_t weights, uint32_t row) {
    ChunkDecoder<Traits::kFormat> decoders[2];
    decoders[0].Load(places.At(weights));
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (i + 1 < kCount) decoders[(i + 1) % 2].Load(places.At(weights + static_cast<uint32_t>((i + 1) * Traits::kChunk)));
      const uint32_t inputs = row + static_cast<uint32_t>(i * Traits::kParts * shared.memory.part_bytes);
      Half<0>(decoders[i % 2], inputs);
      Half<1>(decoders[i % 2], inputs);
    }
  }

  __device__ void Stage(uint32_t stage, uint32_t row, int count) {
    if (count == 4) return Chunks<4>(stage, row);
    if (count >= 2) Chunks<2>(stage, row);
    const int done = count / 2 * 2;
    if (count > done) {
      Chunks<1>(stage + static_cast<uint32_t>(done * Traits::kChunk),
                row + static_cast<uint32_t>(done * Traits::kParts * shared.memory.part_bytes));
    }
  }

  __device__ void Run() {
    const auto lane = threadIdx.x % kWarp, row = lane % kGroupRows;
    const uint32_t place = row * 128 + (lane / kGroupRows ^ row) * 16;
    for (int left = chunks; left > 0; left -= shared.memory.stage_chunks) {
      ptx::BarrierWait(shared.Full(ring.stage), ring.phase);
      const uint32_t stage = shared.Stage(ring.stage);
      Stage(stage, stage + place, min(left, shared.memory.stage_chunks));
      __syncwarp();
      ReleaseStage(shared, ring.stage);
      ring.Next(shared.memory.num_stages);
    }
#pragma unroll
    for (int r = 0; r < kColumns / 2; ++r) sums[r] = d[r / 4][r % 4];
  }
};

// Waits for all products but the last kPending; their operands are free then.
template <int kPending>
__device__ inline void WaitForProducts(Fragments& half) {
  ptx::WgmmaWait<kPending>();
  ptx::WgmmaFenceRegisters(half[0]);
  ptx::WgmmaFenceRegisters(half[1]);
}

// The chunks of a span. Half a chunk is decoded while the half before is multiplied, so that one product is always on its way.
// ptxas takes operand registers for free as soon as their product has started: the fences behind the waits keep them until it is
// over.
template <typename Traits, int kColumns>
struct SpanLoop {
  const GemmShared& shared;
  const StagePlaces& places;
  int chunks;
  Ring& ring;
  float (&sums)[kColumns / 2];
  Fragments a = {};
  Fragments b = {};

  // Starts the products of half a chunk with kColumns columns: a column's bits do not depend on how many there are. `inputs` is
  // the lower word of the operand's descriptor.
  __device__ void Start(uint32_t inputs, const Fragments& half) {
    const uint32_t part = static_cast<uint32_t>(shared.memory.part_bytes) / 16;
    ptx::WgmmaFenceRegisters(sums);
    ptx::WgmmaFence();
#pragma unroll
    for (int step = 0; step < 2; ++step) {
#pragma unroll
      for (int i = 0; i < Traits::kParts; ++i) ptx::Wgmma<kColumns>(sums, half[step], ptx::SwizzledOperandOf(inputs + i * part + step * 2));
    }
    ptx::WgmmaCommit();
  }

  // One chunk; `before` is a stage that is free as soon as the chunk before is multiplied, or negative.
  __device__ void Chunk(uint32_t chunk_at, uint32_t inputs, int before) {
    ChunkDecoder<Traits::kFormat> decoder;
    decoder.Load(places.At(chunk_at));
    decoder.template Decode<0>(a);
    ptx::WgmmaFenceRegisters(a[0]);  // decoded here and not behind the next fence, where ptxas would run one product at a time
    ptx::WgmmaFenceRegisters(a[1]);
    Start(inputs, a);
    WaitForProducts<1>(b);
    if (before >= 0) ReleaseStage(shared, before);
    decoder.template Decode<1>(b);
    ptx::WgmmaFenceRegisters(b[0]);
    ptx::WgmmaFenceRegisters(b[1]);
    Start(inputs + 64 / 16, b);
    WaitForProducts<1>(a);
  }

  __device__ void Run() {
    const auto chunk_inputs = static_cast<uint32_t>(Traits::kParts * shared.memory.part_bytes) / 16;
    int before = -1;
#pragma unroll
    for (int r = 0; r < kColumns / 2; ++r) sums[r] = 0.0f;
    for (int left = chunks; left > 0; left -= shared.memory.stage_chunks) {
      ptx::BarrierWait(shared.Full(ring.stage), ring.phase);
      const uint32_t stage = shared.Stage(ring.stage), inputs = ptx::SwizzledOperandLow(stage);
      Chunk(stage, inputs, before);
      // One copy of this where registers are few: a wide tile, whose stages are long enough with a chunk, and a second set of sums.
      if constexpr (kColumns <= kTokensFew && !Traits::kTotals) {
        const auto count = static_cast<uint32_t>(min(left, shared.memory.stage_chunks));
        for (uint32_t i = 1; i < count; ++i) Chunk(stage + i * Traits::kChunk, inputs + i * chunk_inputs, -1);
      }
      before = ring.stage;
      ring.Next(shared.memory.num_stages);
    }
    WaitForProducts<0>(b);
    ptx::WgmmaFenceRegisters(sums);
    if (before >= 0) ReleaseStage(shared, before);
  }
};

}  // namespace deepinfer::backend::cuda
