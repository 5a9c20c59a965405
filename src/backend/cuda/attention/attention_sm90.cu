// SPDX-License-Identifier: Apache-2.0
// Sparse attention on the tensor cores for 64 heads of 512 channels and the caches' formats (spec/model.md 3).
//
// A persistent block takes one row's run of 64 heads at a time: the heads are the 64 rows of a wgmma. Producers
// (sparse_produce_sm90.cuh) decode keys to bf16 in shared memory, where one copy serves as K and, read with its columns
// contiguous, as V. Keys come in pairs of tiles of 64. Consumer warpgroup w scores tile w of the pair and sums channels
// 256 w .. 256 w + 255 of the output over both tiles: while one turns scores into weights, the other keeps the tensor core
// busy.
//
// Accumulation contract: query and weights rounded to bf16; keys by their place in the list, window ascending in tiles of
// its own, then the chosen latents; a running maximum from the sink on, which moves only when a tile exceeds it by more than
// 2^kSlack; sums so far are scaled when it moves. The left channels take tile 0, then tile 1, the right ones tile 1, then
// tile 0, whose weights are scaled to the newer maximum before they are rounded a second time; each tile in steps of 16 keys
// by the tensor core. The denominator sums unrounded weights, thread by thread and tile by tile, even tiles before odd ones, then the
// sink.
// Nothing depends on other rows.
#include <algorithm>
#include <bit>
#include <cmath>

#include "backend/cuda/attention/attention_launch.h"
#include "backend/cuda/attention/gather_launch.h"
#include "backend/cuda/attention/sparse_consume_sm90.cuh"
#include "backend/cuda/attention/sparse_produce_sm90.cuh"
#include "backend/cuda/attention/split_launch.h"

namespace deepinfer::backend::cuda {
namespace {

using namespace sparse;  // NOLINT: the other half of this kernel

__global__ void __launch_bounds__(kThreads, 1) SparseAttentionKernel(const __grid_constant__ SparseParams p) {
  extern __shared__ __align__(1024) uint8_t raw[];
  auto& shared = *reinterpret_cast<Shared*>(raw);
  if (p.num_decoded != nullptr && *p.num_decoded != 0) return;
  if (threadIdx.x == 0) {
    for (int i = 0; i < 4; ++i) {
      ptx::BarrierInit(&shared.full[i / 2][i % 2], kProducers / kWarp);
      ptx::BarrierInit(&shared.empty[i / 2][i % 2], kWarpgroup / kWarp);
    }
    ptx::BarrierInit(&shared.query_full, kProducers / kWarp);
    ptx::BarrierInit(&shared.query_empty, kConsumers / kWarp);
    ptx::FenceBarrierInit();
  }
  __syncthreads();
  // Made uniform for ptxas, which otherwise runs one product at a time.
  const int group = __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x) / kWarpgroup, 0);
  if (group == 0) {
    ptx::TakeRegisters<kConsumerRegisters>();
    Consume<0>(p, shared);
  } else if (group == 1) {
    ptx::TakeRegisters<kConsumerRegisters>();
    Consume<1>(p, shared);
  } else {
    ptx::ReleaseRegisters<kProducerRegisters>();
    Produce(p, shared);
  }
}

}  // namespace

bool SparseAttentionTakes(const AttentionParams& p) {
  return p.activations != Activations::kFp32 && p.dim == kDim && p.heads % kHeads == 0 && p.rope_dim % 2 == 0 &&
         p.rope_dim <= kTurnedMax && (!p.has_latents || p.latent_cache.block_bytes() % 16 == 0);
}

namespace {

SparseParams Prepare(const AttentionParams& p) {
  SparseParams sparse{};
  sparse.op = p;
  sparse.head_runs = static_cast<int32_t>(p.heads / kHeads);
  sparse.num_items = static_cast<int32_t>(p.rows) * sparse.head_runs;
  sparse.page_units = static_cast<uint32_t>(p.window_cache.page_bytes() / 16);
  if (p.has_latents) {
    sparse.latents_shift = std::countr_zero(static_cast<uint32_t>(p.latent_cache.rows_per_block()));
    sparse.scale_units = static_cast<uint32_t>(p.latent_cache.latent_scales_offset() / 16);
    sparse.block_units = static_cast<uint32_t>(p.latent_cache.block_bytes() / 16);
  }
  if (p.inputs != nullptr) sparse.input_part_bytes = PartBytes(p.rows);
  return sparse;
}

}  // namespace

namespace {

// A block a row, which decodes its keys.
void LaunchSparse(Context& context, const SparseParams& sparse) {
  constexpr int kBytes = sizeof(Shared);
  static_assert(kBytes <= 227 * 1024);
  context.Record(cudaFuncSetAttribute(SparseAttentionKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes),
                 "attention: shared memory");
  const int blocks = std::min(sparse.num_items, context.num_sms());
  SparseAttentionKernel<<<static_cast<unsigned>(blocks), kThreads, kBytes, context.stream()>>>(sparse);
}

// How many keys there are only the device knows: both kernels are launched, and one of them does nothing.
const int32_t* LaunchGather(Context& context, SparseParams sparse, int32_t keys_max) {
  const DecodedKeys keys = DecodeKeys(context, sparse, keys_max);
  if (keys.keys == nullptr) return nullptr;
  GatherAttention(context, sparse, keys);
  sparse.num_decoded = &keys.runs->num_keys;
  LaunchSparse(context, sparse);
  return sparse.num_decoded;
}

}  // namespace

void SparseAttention(Context& context, const AttentionParams& p, int blocks_of_item) {
  const SparseParams sparse = Prepare(p);
  const bool is_free = blocks_of_item == 0;
  if (is_free) blocks_of_item = SplitAttentionBlocks(context, sparse);
  if (blocks_of_item > 1) return SplitAttention(context, sparse, blocks_of_item);
  const int32_t keys_max = is_free ? DecodedKeysMax(sparse) : 0;
  if (keys_max > 0) {
    LaunchGather(context, sparse, keys_max);
  } else {
    LaunchSparse(context, sparse);
  }
}

const int32_t* SparseAttentionOfManyRows(Context& context, const AttentionParams& p, int32_t keys_max) {
  return LaunchGather(context, Prepare(p), keys_max);
}

}  // namespace deepinfer::backend::cuda
