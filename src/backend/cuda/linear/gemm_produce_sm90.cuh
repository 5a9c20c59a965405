// SPDX-License-Identifier: Apache-2.0
// The producers of the matrix kernel (gemm_sm90.cuh).
#pragma once

#include "backend/cuda/linear/gemm_shared_sm90.cuh"
#include "backend/cuda/ptx/grid.cuh"
#include "backend/cuda/ptx/pipeline.cuh"

namespace deepinfer::backend::cuda {

// One thread of each producer warp. A stage costs a thread some 300 cycles and each copy 200 more, so the copies of a stage are spread
// over the warps: warp w brings the weights of tile w, and every fourth piece of the inputs. Where kSplit warpgroups share a tile, each
// of them has stages of its own for its runs of chunks: warp w brings those of member w % kSplit, for tile w / kSplit.
template <typename Traits>
struct Producer {
  static constexpr int kParts = Traits::kParts;

  const GemmParams& p;
  const GemmShared& shared;  // with the member's stages
  int warp;                  // / kSplit
  int member;                // warp % kSplit
  Ring ring = {};
  bool waited = false;

  // What this thread brings of an item.
  struct Source {
    const uint8_t* weights;  // nullptr: the warpgroup has no tile
    const uint8_t* inputs;
    uint32_t input_bytes;    // of a piece
  };

  // The inputs' pieces are numbered chunk by chunk, part by part; this warp has every fourth.
  __device__ void BringInputs(const Source& from, const Ring& at, int chunk, int pieces) const {
    const uint32_t full = shared.Full(at.stage), stage = shared.Stage(at.stage);
    for (int piece = warp; piece < pieces; piece += kProducerWarps) {
      ptx::BulkCopy(stage + static_cast<uint32_t>(piece * shared.memory.part_bytes),
                    from.inputs + (int64_t{chunk} * kParts + piece) * p.part_bytes, from.input_bytes, full);
    }
  }

  // Announces what this warp brings to the stage, and brings the weights.
  __device__ void BringWeights(const Source& from, const Ring& at, int chunk, int chunks, int pieces) const {
    const uint32_t full = shared.Full(at.stage);
    const int own = warp < pieces ? (pieces - warp + kProducerWarps - 1) / kProducerWarps : 0;
    const uint32_t bytes = from.weights != nullptr ? static_cast<uint32_t>(chunks * Traits::kChunk) : 0;
    ptx::BarrierArriveExpect(full, bytes + static_cast<uint32_t>(own) * from.input_bytes);
    if (bytes == 0) return;
    const auto place = static_cast<uint32_t>(shared.InputBytes(kParts) + warp * shared.memory.stage_chunks * Traits::kChunk);
    ptx::BulkCopy(shared.Stage(at.stage) + place, from.weights + int64_t{chunk} * Traits::kChunk, bytes, full);
  }

  // The first chunk of a stage, and that of the next one.
  __device__ int FirstChunk(int begin) const { return Traits::kSplit == 1 ? begin : begin + member * kPromoteChunks; }
  __device__ int NextChunk(int chunk) const {
    if constexpr (Traits::kSplit == 1) return chunk + shared.memory.stage_chunks;
    return (chunk + 1) % kPromoteChunks != 0 ? chunk + 1 : chunk + 1 + (Traits::kSplit - 1) * kPromoteChunks;
  }

  // The first chunks of all, while the kernel before still makes the inputs: weights into every stage, then the wait, then inputs.
  // Only where all rows are taken: what weights a list of token tiles wants is not known before.
  // Returns the chunk behind them.
  __device__ int BringFirst(const Source& from, int begin, int end) {
    const int stage_chunks = shared.memory.stage_chunks, num_stages = shared.memory.num_stages;
    const Ring first = ring;
    int chunk = FirstChunk(begin);
    for (int i = 0; i < num_stages && chunk < end; ++i, chunk = NextChunk(chunk), ring.Next(num_stages)) {
      const int chunks = min(stage_chunks, end - chunk);
      BringWeights(from, ring, chunk, chunks, chunks * kParts);
    }
    ptx::GridWait();
    waited = true;
    const int behind = chunk;
    chunk = FirstChunk(begin);
    for (Ring at = first; chunk != behind; chunk = NextChunk(chunk), at.Next(num_stages)) {
      BringInputs(from, at, chunk, min(stage_chunks, end - chunk) * kParts);
    }
    return behind;
  }

  // The chunks [begin, end) of an item.
  __device__ void Bring(const Source& from, int begin, int end) {
    const int stage_chunks = shared.memory.stage_chunks;
    int chunk = waited ? FirstChunk(begin) : BringFirst(from, begin, end);
    for (; chunk < end; chunk = NextChunk(chunk)) {
      const int chunks = min(stage_chunks, end - chunk);
      ptx::BarrierWait(shared.Empty(ring.stage), ring.phase ^ 1);
      BringWeights(from, ring, chunk, chunks, chunks * kParts);
      BringInputs(from, ring, chunk, chunks * kParts);
      ring.Next(shared.memory.num_stages);
    }
  }

  __device__ void Run(int num_items) {
    // Lists of token tiles are made by a kernel before: nothing that one wrote may be read before the wait, not even what must have
    // ended long ago, for the first-level cache may hold what lay there earlier.
    if (p.token_tiles != nullptr) {
      ptx::GridWait();
      waited = true;
    }
    for (int index = static_cast<int>(blockIdx.x); index < num_items; index += static_cast<int>(gridDim.x)) {
      const GemmItem item = GemmItem::Find(p, index);
      if (item.rows <= 0) continue;
      const int tile = warp < Traits::kTiles ? item.Tile(p, warp) : -1;
      const Source from = {tile < 0 ? nullptr : item.TileData(p, warp, tile),
                           p.inputs + int64_t{item.first_row / kGroupRows} * kAtomBytes +
                               int64_t{item.problem} * p.problem_chunks * kParts * p.part_bytes,
                           static_cast<uint32_t>((item.rows + kGroupRows - 1) / kGroupRows * kAtomBytes)};
      for (int span = item.span; span < SpanEnd(p, item.span); ++span) Bring(from, SpanBegin(p, span), SpanBegin(p, span + 1));
    }
  }
};

}  // namespace deepinfer::backend::cuda
