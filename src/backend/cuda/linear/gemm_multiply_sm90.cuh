// SPDX-License-Identifier: Apache-2.0
// The main loop of a consumer warpgroup of the matrix kernel (gemm_sm90.cuh).
#pragma once

#include "backend/cuda/linear/decode_sm90.cuh"
#include "backend/cuda/linear/gemm_shared_sm90.cuh"
#include "backend/cuda/ptx/pipeline.cuh"
#include "backend/cuda/ptx/wgmma_sm90.cuh"

namespace deepinfer::backend::cuda {

// Where a thread finds its weights in a stage.
struct StagePlaces {
  uint32_t words;       // of this thread in the stage's first chunk, even operand registers
  uint32_t scales;      // the same
  uint32_t odd_words;   // further on for the odd registers, the same for all threads
  uint32_t odd_scales;

  template <typename Traits>
  __device__ static StagePlaces Find(const GemmParams& p, const GemmShared& shared, int warpgroup) {
    using Decoder = ChunkDecoder<Traits::kFormat>;
    const bool pair = p.epilogue == Epilogue::kSwiGlu;
    const int t = static_cast<int>(threadIdx.x) % kWarpgroup, parity = pair ? warpgroup % 2 : 0;
    const auto slot_bytes = static_cast<uint32_t>(shared.memory.stage_chunks * Traits::kChunk);
    const uint32_t slot = static_cast<uint32_t>(shared.InputBytes(Traits::kParts)) + static_cast<uint32_t>(warpgroup - parity) * slot_bytes;
    StagePlaces places;
    places.words = slot + Decoder::WordPlace(t, parity);
    places.scales = slot + Decoder::ScalePlace(t, parity);
    places.odd_words = pair ? slot_bytes : Decoder::WordPlace(0, 1);
    places.odd_scales = pair ? slot_bytes : Decoder::ScalePlace(0, 1) - Decoder::ScalePlace(0, 0);
    return places;
  }
};

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

  // Waits for all products but the last kPending; their operands are free then.
  template <int kPending>
  __device__ void Wait(Fragments& half) {
    ptx::WgmmaWait<kPending>();
    ptx::WgmmaFenceRegisters(half[0]);
    ptx::WgmmaFenceRegisters(half[1]);
  }

  __device__ void Release(int stage) const {
    if (threadIdx.x % kWarp == 0) ptx::BarrierArrive(shared.Empty(stage));
  }

  // One chunk; `before` is a stage that is free as soon as the chunk before is multiplied, or negative.
  __device__ void Chunk(uint32_t chunk_at, uint32_t inputs, int before) {
    const uint32_t words = chunk_at + places.words, scales = chunk_at + places.scales;
    ChunkDecoder<Traits::kFormat> decoder;
    decoder.Load({words, words + places.odd_words, scales, scales + places.odd_scales});
    decoder.template Decode<0>(a);
    ptx::WgmmaFenceRegisters(a[0]);  // decoded here and not behind the next fence, where ptxas would run one product at a time
    ptx::WgmmaFenceRegisters(a[1]);
    Start(inputs, a);
    Wait<1>(b);
    if (before >= 0) Release(before);
    decoder.template Decode<1>(b);
    ptx::WgmmaFenceRegisters(b[0]);
    ptx::WgmmaFenceRegisters(b[1]);
    Start(inputs + 64 / 16, b);
    Wait<1>(a);
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
        if (shared.memory.stage_chunks == 2 && left > 1) Chunk(stage + Traits::kChunk, inputs + chunk_inputs, -1);
      }
      before = ring.stage;
      ring.Next(shared.memory.num_stages);
    }
    Wait<0>(b);
    ptx::WgmmaFenceRegisters(sums);
    if (before >= 0) Release(before);
  }
};

}  // namespace deepinfer::backend::cuda
