// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "backend/cuda/linear/gemm.h"
#include "backend/cuda/linear/packed.h"

namespace deepinfer::backend::cuda {
namespace {

constexpr int64_t kMultiprocessors = 132;
// A matrix of fewer blocks than this, each of four tiles, has spans, so that with few tokens there are about as many items as a
// card needs to keep its memory busy, and with two token tiles one for every multiprocessor.
constexpr int64_t kBlocksWanted = 66;
// A span is long enough to pay for its end.
constexpr int64_t kSpanChunksMin = 8;
// The tensor core truncates when it adds; with three parts per step the sums of a span must stay short to keep fp32's worth.
constexpr int64_t kSpanChunksFp32 = 16;

// Sums of spans that are joined afterwards stay in the second-level cache.
constexpr int64_t kSpanBytesMax = int64_t{40} << 20;

// A step of fewer rows is bound by what lies between its products, where kernels that begin early need room on multiprocessors.
constexpr int64_t kRowsNarrow = 16;

int forced_spans = 0;

constexpr int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Cycles of a product, about: rounds of blocks, each chunk bound by the tensor cores, by decoding, or by what the second-level
// cache gives a multiprocessor (33 bytes a cycle with all of them, twice that alone).
double Cycles(const GemmShape& shape, int64_t spans, int tokens, bool split) {
  const int block_tiles = BlockTiles(tokens, shape.parts, spans > 1 && !split);
  const int64_t blocks = CeilDiv(shape.tiles, block_tiles) * CeilDiv(shape.rows, tokens);
  const int64_t items = blocks * (split ? spans : 1);
  const double rounds = static_cast<double>(CeilDiv(items, kMultiprocessors));
  const double columns = std::max(static_cast<double>(std::min<int64_t>(shape.rows, tokens)), 16.0);
  const double bytes = columns * kChunkCols * 2 * shape.parts + block_tiles * ChunkBytes(shape.format);
  const double busy = static_cast<double>(std::min(items, kMultiprocessors)) / kMultiprocessors;
  const double share = static_cast<double>(block_tiles) / kBlockTiles;
  const double chunk = std::max({200 + 200 * share, 8 * columns * shape.parts * share, bytes / std::min(60.0, 33.0 / busy)});
  const double chunks = static_cast<double>(split ? CeilDiv(shape.num_chunks, spans) : shape.num_chunks);
  const double outputs = static_cast<double>(shape.tiles * kTileRows * shape.rows) * 4;
  // Joining: a launch, and sums written and read.
  const double ends = split ? 4000 + 2 * outputs * static_cast<double>(spans) / (33.0 * kMultiprocessors)
                            : rounds * static_cast<double>(spans - 1) * 300;
  return rounds * (chunks * chunk + 2000) + ends;
}

// Tokens of a tile where a row of tiles has `most` at most.
int TileTokens(const GemmShape& shape, int most) {
  return static_cast<int>(std::min<int64_t>(CeilDiv(std::max<int64_t>(shape.rows, 1), kGroupRows) * kGroupRows, most));
}

// The same for aligned formats, with `tiles` tiles a block.
double AlignedCycles(const GemmShape& shape, int tokens, int tiles) {
  const int64_t items = CeilDiv(shape.tiles, tiles) * CeilDiv(shape.rows, tokens);
  const double rounds = static_cast<double>(CeilDiv(items, kMultiprocessors));
  const double columns = std::max(static_cast<double>(std::min<int64_t>(shape.rows, tokens)), 16.0);
  const double bytes = columns * kAtomBytes / kGroupRows + tiles * ChunkBytes(shape.format);
  const double busy = static_cast<double>(std::min(items, kMultiprocessors)) / kMultiprocessors;
  const double chunk = std::max({110.0 * tiles, 2.5 * columns * tiles, bytes / std::min(60.0, 40.0 / busy)});
  return rounds * (static_cast<double>(shape.num_chunks) * chunk + 2000 + 12 * columns * tiles);
}

GemmConfig ChooseAligned(const GemmShape& shape) {
  GemmConfig best{TileTokens(shape, kTokensWide), false, kBlockTiles};
  double least = AlignedCycles(shape, best.tokens, best.tiles);
  for (const int tokens : {TileTokens(shape, kTokensFew), TileTokens(shape, kTokensFewest)}) {
    for (const int tiles : {4, 2, 1}) {
      if (shape.pairs && tiles == 1) continue;
      const double cycles = AlignedCycles(shape, tokens, tiles);
      if (cycles < least) {
        least = cycles;
        best = {tokens, false, tiles};
      }
    }
  }
  return best;
}

// As many stages as fit beside `reserved` bytes, of `chunks_max` chunks or fewer.
GemmMemory Plan(int tokens, int weight_bytes, int parts, int chunks_max, int reserved) {
  constexpr int kStagesGood = 4, kTokenBytes = kAtomBytes / kGroupRows;
  GemmMemory memory{};
  memory.part_bytes = tokens * kTokenBytes;
  // A product reads as many tokens as it is wide, of the last part of the last stage too.
  const int width = tokens <= kTokensFew ? kTokensFew : kTokensWide;
  const int behind = std::max(width * kTokenBytes - memory.part_bytes - weight_bytes, 0);
  // One atom for the barriers, one for the alignment of the whole.
  const int room = kSharedBytesMax - 2 * kAtomBytes - behind - reserved;
  memory.stage_chunks = chunks_max;
  for (; memory.stage_chunks > 0; memory.stage_chunks /= 2) {
    const int bytes = memory.stage_chunks * (parts * memory.part_bytes + weight_bytes);
    memory.stage_bytes = (bytes + kAtomBytes - 1) / kAtomBytes * kAtomBytes;
    memory.num_stages = std::min(room / memory.stage_bytes, kStagesMax);
    if (memory.num_stages >= kStagesGood || memory.stage_chunks == 1) break;
  }
  memory.total_bytes = 2 * kAtomBytes + memory.num_stages * memory.stage_bytes + behind + reserved;
  return memory;
}

}  // namespace

void TestOnlySetSpans(int spans) { forced_spans = spans; }

int Spans(int64_t tiles, int64_t num_chunks, int parts) {
  if (forced_spans > 0) return static_cast<int>(std::min<int64_t>(forced_spans, num_chunks));
  const int64_t wanted = kBlocksWanted / CeilDiv(tiles, kBlockTiles);
  int64_t spans = std::max<int64_t>(std::min(wanted, num_chunks / kSpanChunksMin), 1);
  if (parts > 1) spans = std::max(spans, CeilDiv(num_chunks, kSpanChunksFp32));
  return static_cast<int>(spans);
}

int Spans(const GemmShape& shape) { return IsAligned(shape.format) ? 1 : Spans(shape.tiles, shape.num_chunks, shape.parts); }

namespace {

GemmConfig ChooseUnaligned(const GemmShape& shape) {
  const int64_t spans = Spans(shape);
  const auto rounded = [&](int most) { return TileTokens(shape, most); };
  const auto config = [&](int tokens, bool split) {
    return GemmConfig{tokens, split, BlockTiles(tokens, shape.parts, spans > 1 && !split)};
  };
  GemmConfig best = config(rounded(TileTokensMax(shape.parts, spans > 1)), false);
  if (spans == 1 || !shape.can_split || spans * shape.tiles * kTileRows * shape.rows * 4 > kSpanBytesMax) return best;
  double least = Cycles(shape, spans, best.tokens, false);
  for (const int tokens : {rounded(TileTokensMax(shape.parts, false)), rounded(kTokensFew)}) {
    const double cycles = Cycles(shape, spans, tokens, true);
    if (cycles < least) {
      least = cycles;
      best = config(tokens, true);
    }
  }
  return best;
}

// Twice as many blocks of half as many tiles, where all of them run at the same time.
void Narrow(const GemmShape& shape, GemmConfig& config) {
  const int spans = Spans(shape);
  if (shape.rows < kRowsNarrow || !shape.narrow || shape.parts > 1 || config.tokens > kTokensFew || (spans > 1 && !config.split)) return;
  const int64_t items = CeilDiv(shape.tiles, kBlockTiles) * CeilDiv(shape.rows, config.tokens) * spans;
  if (2 * items <= kMultiprocessors) config.tiles = kBlockTilesFew;
}

}  // namespace

GemmConfig ChooseGemm(const GemmShape& shape) {
  if (IsAligned(shape.format)) return ChooseAligned(shape);
  GemmConfig config = ChooseUnaligned(shape);
  Narrow(shape, config);
  return config;
}

GemmMemory PlanMemory(int tokens, WeightFormat format, int parts, bool totals, int tiles) {
  const int chunks_max = totals || tokens > kTokensFew ? 1 : tokens > kTokensFewest ? 2 : 4;
  return Plan(tokens, tiles * ChunkBytes(format), parts, chunks_max, 0);
}

GemmMemory PlanAlignedMemory(int tokens, WeightFormat format, int tiles) {
  const int width = tokens <= kTokensFewest ? kTokensFewest : kTokensFew;
  const int shelf_bytes = AlignedSplit(tiles) > 1 ? kTileRows * width * 4 : 0, shelves = 2 * tiles * shelf_bytes;
  GemmMemory memory = Plan(tokens, tiles * ChunkBytes(format), 1, 1, shelves);
  memory.shelf_bytes = shelf_bytes;
  memory.shelves_at = memory.total_bytes - kAtomBytes - shelves;
  return memory;
}

}  // namespace deepinfer::backend::cuda
