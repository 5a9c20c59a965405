// SPDX-License-Identifier: Apache-2.0
// The producers of the matrix kernel (gemm_sm90.cuh).
#pragma once

#include "backend/cuda/linear/gemm_shared_sm90.cuh"
#include "backend/cuda/ptx/grid.cuh"
#include "backend/cuda/ptx/pipeline.cuh"

namespace deepinfer::backend::cuda {

// One thread of each producer warp: warp w brings the weights of consumer warpgroup w, and every fourth piece of the inputs. A
// stage costs a thread some 300 cycles and each copy 200 more, so the copies of a stage are spread over the warps.
template <typename Traits>
struct Producer {
  static constexpr int kParts = Traits::kParts;

  const GemmParams& p;
  const GemmShared& shared;
  int warp;
  Ring ring = {};
  bool waited = false;

  // The chunks [begin, end) of an item; weights is nullptr where the warpgroup has no tile.
  __device__ void Bring(const uint8_t* weights, const uint8_t* inputs, uint32_t input_bytes, int begin, int end) {
    const int stage_chunks = shared.memory.stage_chunks, part_bytes = shared.memory.part_bytes;
    const auto own_weights = static_cast<uint32_t>(shared.InputBytes(kParts) + warp * stage_chunks * Traits::kChunk);
    for (int chunk = begin; chunk < end; chunk += stage_chunks) {
      const uint32_t full = shared.Full(ring.stage), stage = shared.Stage(ring.stage);
      ptx::BarrierWait(shared.Empty(ring.stage), ring.phase ^ 1);
      ring.Next(shared.memory.num_stages);
      // The inputs' pieces are numbered chunk by chunk, part by part.
      const int chunks = min(stage_chunks, end - chunk), pieces = chunks * kParts;
      const int own = warp < pieces ? (pieces - warp + kProducerWarps - 1) / kProducerWarps : 0;
      const uint32_t weight_bytes = weights != nullptr ? static_cast<uint32_t>(chunks * Traits::kChunk) : 0;
      ptx::BarrierArriveExpect(full, weight_bytes + static_cast<uint32_t>(own) * input_bytes);
      if (weights != nullptr) ptx::BulkCopy(stage + own_weights, weights + int64_t{chunk} * Traits::kChunk, weight_bytes, full);
      // Weights do not wait for the kernel before, which packs the inputs.
      if (own > 0 && !waited) ptx::GridWait();
      waited = waited || own > 0;
      for (int piece = warp; piece < pieces; piece += kProducerWarps) {
        ptx::BulkCopy(stage + static_cast<uint32_t>(piece * part_bytes), inputs + (int64_t{chunk} * kParts + piece) * p.part_bytes,
                      input_bytes, full);
      }
    }
  }

  __device__ void Run(int num_items) {
    waited = p.token_tiles != nullptr;
    if (waited) ptx::GridWait();
    for (int index = static_cast<int>(blockIdx.x); index < num_items; index += static_cast<int>(gridDim.x)) {
      const GemmItem item = GemmItem::Find(p, index);
      if (item.rows <= 0) continue;
      const int tile = item.Tile(p, warp);
      const uint8_t* weights = tile < 0 ? nullptr : item.TileData(p, warp, tile, Traits::kChunk);
      const auto input_bytes = static_cast<uint32_t>((item.rows + kGroupRows - 1) / kGroupRows * kAtomBytes);
      const uint8_t* inputs = p.inputs + int64_t{item.first_row / kGroupRows} * kAtomBytes +
                              int64_t{item.problem} * p.problem_chunks * kParts * p.part_bytes;
      for (int span = item.span; span < SpanEnd(p, item.span); ++span) {
        Bring(weights, inputs, input_bytes, SpanBegin(p, span), SpanBegin(p, span + 1));
      }
    }
  }
};

}  // namespace deepinfer::backend::cuda
