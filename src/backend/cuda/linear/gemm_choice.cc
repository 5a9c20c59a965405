// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "backend/cuda/linear/gemm.h"
#include "backend/cuda/linear/packed.h"

namespace deepinfer::backend::cuda {
namespace {

// Below this many tiles, a block each, a matrix alone cannot keep the card's memory busy: its inputs are split over warpgroups.
constexpr int64_t kFewTiles = 132;
constexpr int64_t kFewTilesFp32 = 64;  // longer matrices have shorter spans anyway
constexpr int kDeepSpans = 4;
// With fewer blocks than this, wide ones leave multiprocessors idle that deep ones of fewer tokens would use.
constexpr int64_t kFewBlocks = 264;
// The tensor core truncates when it adds; with three parts per step the sums of a span must stay short to keep fp32's worth.
constexpr int64_t kSpanChunksFp32 = 16;

}  // namespace

int Spans(int64_t tiles, int64_t num_chunks, int parts) {
  if (tiles < (parts == 1 ? kFewTiles : kFewTilesFp32) && num_chunks >= 2 * kDeepSpans) return kDeepSpans;
  if (parts == 1) return 1;
  return static_cast<int>((num_chunks + kSpanChunksFp32 - 1) / kSpanChunksFp32);
}

GemmConfig ChooseGemm(int64_t tiles, int spans, int parts, int64_t tokens, Epilogue epilogue) {
  GemmConfig config{};
  config.tokens = tokens <= 8 ? 8 : tokens <= 32 ? 32 : tokens <= 64 ? 64 : spans > 1 || parts > 1 ? 128 : 256;
  config.deep = spans == kDeepSpans && tiles < kFewTiles && epilogue == Epilogue::kStore;
  if (config.deep && (tiles + 1) / 2 * ((tokens + 127) / 128) < kFewBlocks) config.tokens = std::min(config.tokens, parts == 1 ? 64 : 32);
  // Four spans of 64 tokens in three parts are more than two stages of shared memory.
  if (config.deep && config.tokens == 64 && parts > 1) config.tokens = 128;
  config.warpgroups = config.tokens <= 64 ? 4 : 2;
  config.deep = config.deep && config.warpgroups == 4;
  // 256 tokens leave no registers for a second set of sums.
  config.sums = !config.deep && config.tokens < 256;
  return config;
}

GemmMemory PlanMemory(const GemmConfig& config, WeightFormat format, int parts) {
  constexpr int kFloat = 4;
  const int regs = config.tokens / 2, inputs = config.deep ? config.warpgroups : 1;
  GemmMemory memory{};
  memory.exchange_bytes = (config.deep ? regs * (config.warpgroups - 1) : regs / 2 * config.warpgroups) * kWarpgroup * kFloat;
  const int bytes = inputs * parts * config.tokens * kChunkCols * 2 + config.warpgroups * ChunkBytes(format);
  memory.stage_bytes = (bytes + kAtomBytes - 1) / kAtomBytes * kAtomBytes;
  // One atom for the barriers, one for the alignment of the whole.
  memory.num_stages = std::min((kSharedBytesMax - 2 * kAtomBytes - memory.exchange_bytes) / memory.stage_bytes, kStagesMax);
  memory.total_bytes = 2 * kAtomBytes + memory.exchange_bytes + memory.num_stages * memory.stage_bytes;
  return memory;
}

}  // namespace deepinfer::backend::cuda
