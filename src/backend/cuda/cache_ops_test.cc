// SPDX-License-Identifier: Apache-2.0
// Properties of the ops on the caches (storing, compressing, selecting, attending) on the card, over ragged requests with
// shuffled pages: stored bytes and outputs equal the reference's, choices equal it exactly, ties included, and a row's
// bits do not depend on the batch.
#include "backend/cuda/attention/attention_launch.h"
#include "backend/cuda/twin_test_util.h"
#include "numeric/quantize.h"

namespace deepinfer::backend::cuda {
namespace {

// Requests with caches full of random rows; batch rows pick a request and a position at random.
class CacheOps : public TwinTest {
 protected:
  static constexpr int kRequests = 5;
  static constexpr int kTokensMax = 1500;

  struct Shape {
    int dim, index_dim, rope_dim, ratio;
  };
  struct AttentionCase {
    Shape shape;
    int64_t heads;
    int window;
    int64_t topk;
    int64_t rows;  // compared with the reference
    Activations activations = Activations::kFp32;
    double tolerance = 1e-5;
  };

  void MakeCaches(const Shape& shape) {
    shape_ = shape;
    const int pages = kTokensMax / kBlockTokens + 1;
    lengths_ = Integers(kRequests, 1, kTokensMax);
    lengths_[0] = kTokensMax;
    lengths_[1] = 1;
    std::vector<int32_t> order(static_cast<size_t>(kRequests * pages));
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
    std::shuffle(order.begin(), order.end(), random_);
    window_pages_ = order;
    std::shuffle(order.begin(), order.end(), random_);
    blocks_ = order;
    first_page_.assign(kRequests, 0);
    WindowCache window{.pages_stride = pages, .dim = shape.dim};
    GlobalCache global{.blocks_stride = pages, .ratio = shape.ratio, .dim = shape.dim, .index_dim = shape.index_dim};
    window_bytes_ = Codes(order.size() * static_cast<size_t>(window.page_bytes()));
    for (size_t page = 0; page < order.size(); ++page) {
      Scales(window_bytes_, page * static_cast<size_t>(window.page_bytes()) + static_cast<size_t>(kBlockTokens * shape.dim),
             static_cast<size_t>(kBlockTokens * shape.dim / 32), 116, 122);
    }
    global_bytes_ = Codes(order.size() * static_cast<size_t>(global.block_bytes()));
    for (size_t block = 0; block < order.size(); ++block) {
      const size_t base = block * static_cast<size_t>(global.block_bytes());
      Scales(global_bytes_, base + static_cast<size_t>(global.latent_scales_offset()),
             static_cast<size_t>(global.index_codes_offset() - global.latent_scales_offset()), 0x20, 0x38);
      Scales(global_bytes_, base + static_cast<size_t>(global.index_scales_offset()),
             static_cast<size_t>(global.block_bytes() - global.index_scales_offset()), 125, 127);
    }
    requests_ = Integers(kRowsMax, 0, kRequests - 1);
    positions_.clear();
    for (const int32_t request : requests_) positions_.push_back(Uniform(0, lengths_[static_cast<size_t>(request)] - 1));
  }

  WindowCache PutWindow(Side& side) {
    const int pages = kTokensMax / kBlockTokens + 1;
    return {.base = reinterpret_cast<std::byte*>(side.Put(window_bytes_)), .pages = side.Put(window_pages_),
            .first_page = side.Put(first_page_), .pages_stride = pages, .dim = shape_.dim};
  }
  GlobalCache PutGlobal(Side& side) {
    const int pages = kTokensMax / kBlockTokens + 1;
    return {.base = reinterpret_cast<std::byte*>(side.Put(global_bytes_)), .blocks = side.Put(blocks_), .blocks_stride = pages,
            .ratio = shape_.ratio, .dim = shape_.dim, .index_dim = shape_.index_dim};
  }

  std::vector<uint8_t> Codes(size_t n) {
    std::vector<uint8_t> codes(n);
    for (uint8_t& code : codes) {
      code = static_cast<uint8_t>(random_());
      if ((code & 0x7F) == 0x7F) code ^= 1;
    }
    return codes;
  }
  void Scales(std::vector<uint8_t>& bytes, size_t begin, size_t n, int low, int high) {
    for (size_t i = begin; i < begin + n; ++i) bytes[i] = static_cast<uint8_t>(Uniform(low, high));
  }
  // Cosines and sines.
  std::vector<float> Turns(int64_t n) {
    std::vector<float> table = Normal(n);
    for (size_t i = 0; i + 1 < table.size(); i += 2) {
      const float angle = 3.0f * table[i];
      table[i] = std::cos(angle);
      table[i + 1] = std::sin(angle);
    }
    return table;
  }
  template <typename T>
  static std::vector<T> Rows(const std::vector<T>& all, int64_t begin, int64_t rows, int64_t width = 1) {
    return std::vector<T>(all.begin() + begin * width, all.begin() + (begin + rows) * width);
  }

  // Rows that each go to a place of their own: request i, positions 0, 1, ...
  void UniquePlaces(int64_t rows, std::vector<int32_t>* requests, std::vector<int32_t>* places) const {
    const int64_t each = rows / kRequests + 1;
    for (int64_t r = 0; r < rows; ++r) {
      requests->push_back(static_cast<int32_t>(r / each));
      places->push_back(static_cast<int32_t>(r % each));
    }
  }

  // What each row of a batch attends to: a floor for some, and as many latents as it sees, up to topk, in ascending order.
  struct Choices {
    std::vector<int32_t> floor, selected, count;
  };
  Choices Choose(int64_t rows, int64_t topk) {
    Choices choices;
    for (int64_t r = 0; r < rows; ++r) {
      const int position = positions_[static_cast<size_t>(r)];
      choices.floor.push_back(Uniform(0, 2) == 0 ? std::max(0, position - Uniform(0, 9)) : 0);
      std::vector<int32_t> all(static_cast<size_t>((position + 1) / shape_.ratio));
      for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int32_t>(i);
      std::shuffle(all.begin(), all.end(), random_);
      all.resize(std::min(all.size(), static_cast<size_t>(topk)));
      std::sort(all.begin(), all.end());
      choices.count.push_back(static_cast<int32_t>(all.size()));
      all.resize(static_cast<size_t>(topk), -1);
      choices.selected.insert(choices.selected.end(), all.begin(), all.end());
    }
    return choices;
  }

  Shape shape_{};
  std::vector<int32_t> lengths_, window_pages_, blocks_, first_page_, requests_, positions_;
  std::vector<uint8_t> window_bytes_, global_bytes_;
};

TEST_F(CacheOps, StoresTheBytesOfTheReference) {
  for (const Shape& shape : {Shape{512, 128, 64, 1}, Shape{32, 32, 16, 2}, Shape{160, 64, 32, 2}}) {
    MakeCaches(shape);
    const int64_t kRows = kSmall ? 40 : 700;
    std::vector<int32_t> requests, places;
    UniquePlaces(kRows, &requests, &places);
    const int64_t stride = shape.dim + 32;
    const auto kv = Normal(kRows * stride), key = Normal(kRows * shape.index_dim), table = Normal(kRows * shape.rope_dim);
    const auto weight = Normal(shape.dim), index_weight = Normal(shape.index_dim), latent = Normal(kRows * shape.dim);
    const auto run = [&](Backend& backend, int which) {
      Side side(backend);
      const float* t = side.Put(table);
      if (which == 0) {
        const WindowCache cache = PutWindow(side);
        side->StoreWindow({kRows, shape.rope_dim, side.Put(kv), stride, side.Put(weight), 1e-20f, t, side.Put(places), side.Put(requests), cache});
        return side.Get(reinterpret_cast<const uint8_t*>(cache.base), static_cast<int64_t>(window_bytes_.size()));
      }
      const GlobalCache cache = PutGlobal(side);
      if (which == 1) {
        side->StoreLatent({kRows, shape.rope_dim, side.Put(latent), t, side.Put(places), side.Put(requests), cache});
      } else {
        side->StoreIndexKey({kRows, shape.rope_dim, side.Put(key), side.Put(index_weight), 1e-20f, t, side.Put(places), side.Put(requests), cache});
      }
      return side.Get(reinterpret_cast<const uint8_t*>(cache.base), static_cast<int64_t>(global_bytes_.size()));
    };
    for (const int which : {0, 1, 2}) {
      SCOPED_TRACE(which);
      const auto got = run(*card(), which);
      EXPECT_NE(got, which == 0 ? window_bytes_ : global_bytes_);
      ExpectCodesEqual(got, run(*reference(), which));
    }
  }
}

// The linear that makes the rows has several spans, which are added up on the way.
TEST_F(CacheOps, ALinearIntoTheWindow) {
  constexpr int64_t kInputs = 2048;
  for (const Shape& shape : {Shape{512, 128, 64, 1}, Shape{160, 64, 32, 2}}) {
    MakeCaches(shape);
    const HostMatrix w = Weights(WeightFormat::kFp8Tile32, shape.dim, kInputs);
    for (const int64_t rows : {int64_t{1}, int64_t{31}, kSmall ? int64_t{40} : int64_t{700}}) {
      std::vector<int32_t> requests, places;
      UniquePlaces(rows, &requests, &places);
      const auto x = Normal(rows * kInputs), table = Normal(rows * shape.rope_dim), weight = Normal(shape.dim);
      const auto run = [&](bool at_once) {
        Side side(*card());
        const WindowCache cache = PutWindow(side);
        auto* kv = side.Out<float>(rows * shape.dim);
        const LinearParams linear{.rows = rows, .w = side.Bind(w.matrix), .activations = Activations::kBf16, .x = side.Put(x),
                                  .x_stride = kInputs, .y = kv, .y_stride = shape.dim};
        const StoreWindowParams store{rows, shape.rope_dim, kv, shape.dim, side.Put(weight), 1e-20f, side.Put(table), side.Put(places),
                                      side.Put(requests), cache};
        if (at_once) {
          side->LinearStoreWindow(linear, store);
        } else {
          side->Linear(linear);
          side->StoreWindow(store);
        }
        return side.Get(reinterpret_cast<const uint8_t*>(cache.base), static_cast<int64_t>(window_bytes_.size()));
      };
      const auto got = run(true);
      EXPECT_NE(got, window_bytes_);
      EXPECT_EQ(got, run(false)) << rows << " rows of " << shape.dim;
    }
  }
}

TEST_F(CacheOps, CompressReadsTheRingAndThenUpdatesIt) {
  constexpr int64_t kDim = 96;
  for (const int ratio : {1, 2, 4}) {
    const int ring = ratio + 1;
    // Three requests, ragged runs of consecutive positions that begin inside a group.
    std::vector<int32_t> requests, positions, last_row;
    const std::pair<int, int> runs[] = {{0, 9}, {ratio - 1, 2}, {5, 130}};
    for (int32_t i = 0; i < 3; ++i) {
      for (int n = 0; n < runs[i].second; ++n) {
        const int position = runs[i].first + n;
        if ((position + 1) % ratio == 0) last_row.push_back(static_cast<int32_t>(requests.size()));
        requests.push_back(i);
        positions.push_back(position);
      }
    }
    const auto rows = static_cast<int64_t>(requests.size()), latents = static_cast<int64_t>(last_row.size());
    const auto kv = Normal(rows * kDim), gate = Normal(rows * kDim), state = Normal(3 * ring * 2 * kDim), weight = Normal(kDim);
    const std::vector<int32_t> slots = {2, 0, 1};
    const auto run = [&](Backend& backend) {
      Side side(backend);
      auto* out = side.Out<float>(latents * kDim);
      auto* ring_state = side.Put(state);
      side->Compress({.rows = rows, .latents = latents, .ratio = ratio, .ring = ring, .dim = kDim, .kv = side.Put(kv),
                      .gate = ratio == 1 ? nullptr : side.Put(gate), .last_row = side.Put(last_row), .positions = side.Put(positions),
                      .requests = side.Put(requests), .ring_slots = side.Put(slots), .state = ring_state,
                      .norm_weight = side.Put(weight), .norm_eps = 1e-20f, .out = out});
      return std::pair(side.Get(out, latents * kDim), side.Get(ring_state, static_cast<int64_t>(state.size())));
    };
    const auto got = run(*card()), want = run(*reference());
    ExpectRowsNear(got.first, want.first, kDim, 2e-6);
    EXPECT_EQ(got.second, want.second);
  }
}

TEST_F(CacheOps, IndexSelectEqualsTheReferenceWithTies) {
  for (const Shape& shape : {Shape{32, 128, 64, 1}, Shape{32, 128, 64, 2}, Shape{32, 32, 16, 2}}) {
    if (kSmall && shape.ratio == 1) continue;
    MakeCaches(shape);
    constexpr int64_t kTopk = 40, kBlockSize = 8, kBlocksMax = 12;
    const int64_t heads = shape.index_dim == 32 ? 4 : shape.ratio == 2 ? 32 : 8;  // heads of 128: the tensor cores
    // Small integers: every score is exact in fp32, and ties abound.
    const auto draw = [&](int64_t n) {
      std::vector<float> values;
      for (const int32_t v : Integers(n, -2, 2)) values.push_back(static_cast<float>(v));
      return values;
    };
    const auto q = draw(kRowsMax * heads * shape.index_dim), weights = draw(kRowsMax * heads);
    // Published blocks, their number, the selection under `mode`, and its number, side by side.
    const auto run = [&](Backend& backend, Candidates mode, int64_t begin, int64_t rows) {
      Side side(backend);
      auto* blocks = side.Out<int32_t>(rows * kBlocksMax);
      auto* block_count = side.Out<int32_t>(rows);
      auto* selected = side.Out<int32_t>(rows * kTopk);
      auto* count = side.Out<int32_t>(rows);
      IndexSelectParams p{.rows = rows, .heads = heads, .q = side.Put(Rows(q, begin, rows, heads * shape.index_dim)),
                          .weights = side.Put(Rows(weights, begin, rows, heads)), .weight_scale = 0.5f, .score_scale = 0.125f,
                          .positions = side.Put(Rows(positions_, begin, rows)), .requests = side.Put(Rows(requests_, begin, rows)),
                          .cache = PutGlobal(side), .topk = kTopk, .candidates = Candidates::kPublish, .block_size = kBlockSize,
                          .blocks_max = kBlocksMax, .blocks = blocks, .block_count = block_count, .selected = selected,
                          .selected_count = count};
      side->IndexSelect(p);
      if (mode != Candidates::kPublish) {
        p.candidates = mode;
        side->IndexSelect(p);
      }
      const auto b = side.Get(blocks, rows * kBlocksMax), bc = side.Get(block_count, rows);
      const auto s = side.Get(selected, rows * kTopk), sc = side.Get(count, rows);
      std::vector<int32_t> result;
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t i = 0; i < kBlocksMax; ++i) {
          result.push_back(i < bc[static_cast<size_t>(r)] ? b[static_cast<size_t>(r * kBlocksMax + i)] : -7);
        }
        result.push_back(bc[static_cast<size_t>(r)]);
        result.insert(result.end(), s.begin() + r * kTopk, s.begin() + (r + 1) * kTopk);
        result.push_back(sc[static_cast<size_t>(r)]);
      }
      return result;
    };
    for (const Candidates mode : {Candidates::kNone, Candidates::kPublish, Candidates::kRestrict}) {
      SCOPED_TRACE(int(mode));
      EXPECT_EQ(run(*card(), mode, 0, AtMost(150)), run(*reference(), mode, 0, AtMost(150)));
      ExpectRowsInvariant<int32_t>(kBlocksMax + kTopk + 2, [&](int64_t begin, int64_t rows) { return run(*card(), mode, begin, rows); });
      if (HasFatalFailure()) return;
    }
  }
}

// More runs of eight than a block of threads holds, published sizes of topk and candidates, several rows of a request, and one
// that sees nothing. Some keys, and one row's queries, have scales too far apart for integer products.
TEST_F(CacheOps, IndexSelectOfLongContexts) {
  constexpr int kTokens = 70000, kBlocks = (kTokens + kBlockTokens - 1) / kBlockTokens;
  constexpr int64_t kHeads = 16, kDim = 128, kTopk = 512, kBlockSize = 8, kBlocksMax = 2048, kRows = 11;
  GlobalCache cache{.blocks_stride = kBlocks, .ratio = 1, .dim = 32, .index_dim = kDim};
  std::vector<uint8_t> bytes = Codes(static_cast<size_t>(kBlocks * cache.block_bytes()));
  std::vector<int32_t> blocks(kBlocks), requests(kRows, 1), positions;
  for (int i = 0; i < kBlocks; ++i) {
    blocks[static_cast<size_t>(i)] = i;
    const auto scales = static_cast<size_t>(i * cache.block_bytes() + cache.index_scales_offset());
    Scales(bytes, scales, kBlockTokens * kDim / 32, 125, 127);
    if (i % 3 == 0) bytes[scales + static_cast<size_t>(Uniform(0, kBlockTokens * kDim / 32 - 1))] = 122;
  }
  std::shuffle(blocks.begin(), blocks.end(), random_);
  blocks.insert(blocks.end(), blocks.begin(), blocks.end());  // two requests with the same blocks
  for (int r = 0; r < kRows; ++r) positions.push_back(kTokens - kRows + r);
  requests[0] = requests[1] = 0;
  // Around what one reading of runs, or of wide runs, holds; few items more than are chosen; fewer.
  const int chosen_positions[] = {65600, 4, 65535, 65543, 4095, 4100, 512, 9001};
  std::copy(std::begin(chosen_positions), std::end(chosen_positions), positions.begin());
  const auto draw = [&](int64_t n, int most) {
    std::vector<float> values;
    for (const int32_t v : Integers(n, -most, most)) values.push_back(static_cast<float>(v));
    return values;
  };
  auto q = draw(kRows * kHeads * kDim, 1);
  for (size_t at = kHeads * kDim; at < 2 * kHeads * kDim; ++at) q[at] = at % kDim == 0 ? 0x1p-7f : at % kDim == 1 ? 1.0f : 0.0f;
  const auto run = [&](Backend& backend, Candidates mode, const std::vector<float>& weights) {
    Side side(backend);
    cache.base = reinterpret_cast<std::byte*>(side.Put(bytes));
    cache.blocks = side.Put(blocks);
    auto* chosen = side.Out<int32_t>(kRows * kBlocksMax);
    auto* block_count = side.Out<int32_t>(kRows);
    auto* selected = side.Out<int32_t>(kRows * kTopk);
    auto* count = side.Out<int32_t>(kRows);
    IndexSelectParams p{.rows = kRows, .heads = kHeads, .q = side.Put(q), .weights = side.Put(weights), .weight_scale = 0.5f,
                        .score_scale = 0.125f, .positions = side.Put(positions), .requests = side.Put(requests), .cache = cache,
                        .topk = kTopk, .candidates = Candidates::kPublish, .block_size = kBlockSize, .blocks_max = kBlocksMax,
                        .blocks = chosen, .block_count = block_count, .selected = selected, .selected_count = count};
    side->IndexSelect(p);
    std::vector<int32_t> result = side.Get(block_count, kRows);
    for (int64_t r = 0; r < kRows; ++r) {
      const auto row = side.Get(chosen + r * kBlocksMax, result[static_cast<size_t>(r)]);
      result.insert(result.end(), row.begin(), row.end());
    }
    if (mode == Candidates::kRestrict) {
      p.candidates = mode;
      side->IndexSelect(p);
    }
    for (const auto& [data, n] : {std::pair{selected, kRows * kTopk}, {count, kRows}}) {
      const auto values = side.Get(data, n);
      result.insert(result.end(), values.begin(), values.end());
    }
    return result;
  };
  // Many equal scores; few; nothing but zeros.
  for (const int most : {1, 32, 0}) {
    if (kSmall && most != 32) continue;
    const auto weights = draw(kRows * kHeads, most);
    for (const Candidates mode : {Candidates::kPublish, Candidates::kRestrict}) {
      SCOPED_TRACE(testing::Message() << "weights up to " << most << ", mode " << int(mode));
      EXPECT_EQ(run(*card(), mode, weights), run(*reference(), mode, weights));
    }
  }
}

// Keys that are all equal, but for a few with scales far apart, which send their neighbours another way (index/integers.cuh). Their
// scores must not show it: the lowest are chosen. Rows alone and in groups.
TEST_F(CacheOps, IndexScoresDoNotDependOnNeighbours) {
  constexpr int kTokens = 3000, kBlocks = (kTokens + kBlockTokens - 1) / kBlockTokens, kAlone = 24, kRows = 2 * kAlone;
  constexpr int64_t kHeads = 32, kDim = 128, kTopk = 512, kGroups = kDim / 32;
  GlobalCache cache{.blocks_stride = kBlocks, .ratio = 1, .dim = 32, .index_dim = kDim};
  std::vector<uint8_t> bytes(static_cast<size_t>(kBlocks * cache.block_bytes()));
  const std::vector<uint8_t> key = Codes(kDim / 2);
  for (int i = 0; i < kBlocks * kBlockTokens; ++i) {
    uint8_t* block = &bytes[static_cast<size_t>(i / kBlockTokens * cache.block_bytes())];
    uint8_t* scales = block + cache.index_scales_offset() + i % kBlockTokens * kGroups;
    const bool far_apart = Uniform(0, 80) == 0;
    for (int group = 0; group < kGroups; ++group) scales[group] = static_cast<uint8_t>(far_apart ? 100 + 10 * group : 124 + group);
    if (!far_apart) std::copy(key.begin(), key.end(), block + cache.index_codes_offset() + i % kBlockTokens * kDim / 2);
  }
  std::vector<int32_t> blocks, requests;
  for (int i = 0; i < (kAlone + 1) * kBlocks; ++i) blocks.push_back(i % kBlocks);
  for (int r = 0; r < kRows; ++r) requests.push_back(std::min(r, kAlone));
  auto q = Normal(kRows * kHeads * kDim);
  numeric::RoundTripIndex(q.data(), static_cast<int>(q.size()));
  const auto weights = Normal(kRows * kHeads);
  const auto run = [&](Backend& backend) {
    Side side(backend);
    cache.base = reinterpret_cast<std::byte*>(side.Put(bytes));
    cache.blocks = side.Put(blocks);
    auto* selected = side.Out<int32_t>(kRows * kTopk);
    side->IndexSelect({.rows = kRows, .heads = kHeads, .q = side.Put(q), .weights = side.Put(weights), .weight_scale = 0.3f,
                       .score_scale = 0.7f, .positions = side.Put(std::vector<int32_t>(kRows, kTokens - 1)), .requests = side.Put(requests),
                       .cache = cache, .topk = kTopk, .candidates = Candidates::kNone, .selected = selected,
                       .selected_count = side.Out<int32_t>(kRows)});
    return side.Get(selected, kRows * kTopk);
  };
  EXPECT_EQ(run(*card()), run(*reference()));
}

// Queries with one channel so large that the other, as an integer of the same unit, would be nothing; keys that are zero where the large
// one is, so that the other decides.
TEST_F(CacheOps, IndexQueriesOfAllSizesCount) {
  constexpr int kTokens = 3000, kBlocks = (kTokens + kBlockTokens - 1) / kBlockTokens;
  constexpr int64_t kHeads = 32, kDim = 128, kTopk = 512, kRows = 3;
  GlobalCache cache{.blocks_stride = kBlocks, .ratio = 1, .dim = 32, .index_dim = kDim};
  std::vector<uint8_t> bytes = Codes(static_cast<size_t>(kBlocks * cache.block_bytes()));
  for (int i = 0; i < kBlocks * kBlockTokens; ++i) {
    uint8_t* block = &bytes[static_cast<size_t>(i / kBlockTokens * cache.block_bytes())];
    block[cache.index_codes_offset() + i % kBlockTokens * kDim / 2] &= 0x0F;
    std::fill_n(block + cache.index_scales_offset() + i % kBlockTokens * kDim / 32, kDim / 32, static_cast<uint8_t>(150));
  }
  std::vector<int32_t> blocks;
  for (int i = 0; i < kBlocks; ++i) blocks.push_back(i);
  std::vector<float> q(static_cast<size_t>(kRows * kHeads * kDim)), weights(static_cast<size_t>(kRows * kHeads), 0x1p-36f);
  for (size_t at = 0; at < q.size(); at += kDim) q[at] = 0x1p-97f, q[at + 1] = 0x1p60f;
  const auto run = [&](Backend& backend) {
    Side side(backend);
    cache.base = reinterpret_cast<std::byte*>(side.Put(bytes));
    cache.blocks = side.Put(blocks);
    auto* selected = side.Out<int32_t>(kRows * kTopk);
    side->IndexSelect({.rows = kRows, .heads = kHeads, .q = side.Put(q), .weights = side.Put(weights), .weight_scale = 1.0f,
                       .score_scale = 1.0f, .positions = side.Put(std::vector<int32_t>(kRows, kTokens - 1)),
                       .requests = side.Put(std::vector<int32_t>(kRows, 0)), .cache = cache, .topk = kTopk,
                       .candidates = Candidates::kNone, .selected = selected, .selected_count = side.Out<int32_t>(kRows)});
    return side.Get(selected, kRows * kTopk);
  };
  const auto expected = run(*reference());
  EXPECT_NE(expected[kTopk - 1], kTopk - 1);
  EXPECT_EQ(run(*card()), expected);
}

// Outputs that are handed over as a linear's inputs: its results are those of the rows, to the bit. The room behind the last row
// is full of NaN. With DI_TEST_SMALL they are handed over, and that is all.
void ExpectSameThroughInputs(Side& side, AttentionParams p, const HostMatrix& after) {
  const Matrix w = side.Bind(after.matrix);
  const int64_t bytes = side->input_bytes(w, 1, Activations::kBf16, p.rows);
  ASSERT_GT(bytes, 0);
  LinearParams linear{.rows = p.rows, .w = w, .activations = Activations::kBf16, .x = p.out, .x_stride = w.cols,
                      .y = side.Out<float>(p.rows * w.rows), .y_stride = w.rows};
  if (!kSmall) side->Linear(linear);
  const auto expected = side.Get(linear.y, p.rows * w.rows);
  p.out = nullptr;
  p.inputs = side.Out<uint8_t>(bytes);
  side->Attention(p);
  if (kSmall) return;
  linear.x = nullptr;
  linear.inputs = p.inputs;
  linear.y = side.Out<float>(p.rows * w.rows);
  side->Linear(linear);
  EXPECT_EQ(expected, side.Get(linear.y, p.rows * w.rows));
}

TEST_F(CacheOps, AttentionEqualsTheReferenceAndKeepsBits) {
  // bf16: the queries have eight bits already, and a softmax weight of eight bits is off by at most 2^-9 of itself. Of a row's
  // largest output that makes some 4e-3, where the weighted keys partly cancel.
  const AttentionCase cases[] = {{{512, 128, 64, 1}, 64, 128, 512, 20},
                                 {{32, 32, 16, 2}, 4, 16, 6, 200},
                                 {{128, 64, 32, 2}, 3, 100, 64, 100},
                                 {{64, 32, 32, 1}, 2, 32, 0, 200},
                                 {{512, 128, 64, 1}, 64, 128, 512, 40, Activations::kBf16, 1e-2},
                                 {{512, 128, 64, 2}, 128, 100, 64, 20, Activations::kBf16, 1e-2},
                                 {{512, 128, 64, 1}, 64, 128, 0, 40, Activations::kBf16, 1e-2}};
  for (const AttentionCase& c : cases) {
    MakeCaches(c.shape);
    if (kSmall && c.shape.dim == 512 && c.activations == Activations::kFp32) continue;  // the same kernel as for smaller shapes
    const int64_t rows_all = c.shape.dim == 512 ? (kSmall ? 3 : 300) : kSmall ? 20 : kRowsMax;  // of 64 heads of 512 fewer, for time
    const int64_t width = c.heads * c.shape.dim, compared = std::min(c.rows, rows_all);
    const auto raw = Normal(rows_all * width, 0.5f), sink = Normal(c.heads), table = Turns(rows_all * c.shape.rope_dim);
    auto q = raw;
    if (c.activations == Activations::kBf16) {
      for (float& value : q) value = numeric::Bf16ToFloat(numeric::FloatToBf16(value));
    }
    const auto [floor, selected, count] = Choose(rows_all, c.topk);
    const HostMatrix after = Weights(WeightFormat::kBf16, 64, width);
    const auto run_on = [&](Backend& backend, const std::vector<float>& queries, int64_t begin, int64_t rows) {
      Side side(backend);
      auto* out = side.Out<float>(rows * width);
      AttentionParams p{.rows = rows, .heads = c.heads, .dim = c.shape.dim, .rope_dim = c.shape.rope_dim,
                        .q = side.Put(Rows(queries, begin, rows, width)), .table = side.Put(Rows(table, begin, rows, c.shape.rope_dim)),
                        .positions = side.Put(Rows(positions_, begin, rows)), .requests = side.Put(Rows(requests_, begin, rows)),
                        .window = c.window, .window_floor = side.Put(Rows(floor, begin, rows)), .window_cache = PutWindow(side),
                        .has_latents = c.topk > 0, .latent_cache = PutGlobal(side), .topk = c.topk,
                        .selected = side.Put(Rows(selected, begin, rows, c.topk)), .selected_count = side.Put(Rows(count, begin, rows)),
                        .sink = side.Put(sink), .scale = 1.0f / std::sqrt(static_cast<float>(c.shape.dim)),
                        .activations = c.activations, .out = out};
      side->Attention(p);
      if (backend.can_record() && rows <= compared) ExpectSameThroughInputs(side, p, after);
      return side.Get(out, rows * width);
    };
    const auto run = [&](Backend& backend, int64_t begin, int64_t rows) { return run_on(backend, q, begin, rows); };
    // The kernel's own rounding of queries is to the nearest bf16.
    if (c.activations == Activations::kBf16) {
      EXPECT_EQ(run_on(*card(), raw, 0, compared), run(*card(), 0, compared));
    }
    ExpectRowsNear(run(*card(), 0, compared), run(*reference(), 0, compared), c.shape.dim, c.tolerance);
    if (HasFatalFailure()) return;
    const auto all = run(*card(), 0, rows_all);
    for (const int64_t rows : RowCounts()) {
      if (rows > rows_all) continue;
      const int64_t begin = std::min<int64_t>(rows_all - rows, 37);
      EXPECT_EQ(run(*card(), begin, rows), Rows(all, begin, rows, width)) << rows << " rows";
    }
  }
}

// Blocks that share a row give the bits of one that does it alone: rows with few keys, with none and with all, and queries so large
// that the running maximum moves often.
TEST_F(CacheOps, AttentionOfSharedRowsKeepsBits) {
  struct Case {
    Shape shape;
    int64_t heads;
    int window;
    int64_t topk;
    float deviation;
  };
  for (const Case& c : {Case{{512, 128, 64, 1}, 64, 128, 512, 0.5f}, Case{{512, 128, 64, 1}, 64, 128, 512, 30.0f},
                        Case{{512, 128, 64, 2}, 128, 100, 64, 30.0f}, Case{{512, 128, 32, 1}, 64, 128, 0, 30.0f}}) {
    MakeCaches(c.shape);
    const int64_t rows = kSmall ? 6 : 150;
    const auto all = static_cast<size_t>(rows);
    for (size_t r = 0; r < all; r += 4) positions_[r] = std::min(positions_[r], static_cast<int32_t>(r * 2));
    Choices choices = Choose(rows, c.topk);
    for (size_t r = 1; r < all; r += 4) choices.count[r] = std::min(choices.count[r], static_cast<int32_t>(r * 7));
    for (size_t r = 2; r < all; r += 8) choices.floor[r] = positions_[r] + 1;  // no window
    choices.count[2] = 0;
    const int64_t width = c.heads * c.shape.dim;
    Side side(*card());
    AttentionParams p{.rows = rows, .heads = c.heads, .dim = c.shape.dim, .rope_dim = c.shape.rope_dim,
                      .q = side.Put(Normal(rows * width, c.deviation)), .table = side.Put(Turns(rows * c.shape.rope_dim)),
                      .positions = side.Put(Rows(positions_, 0, rows)), .requests = side.Put(Rows(requests_, 0, rows)),
                      .window = c.window, .window_floor = side.Put(choices.floor), .window_cache = PutWindow(side),
                      .has_latents = c.topk > 0, .latent_cache = PutGlobal(side), .topk = c.topk, .selected = side.Put(choices.selected),
                      .selected_count = side.Put(choices.count), .sink = side.Put(Normal(c.heads)),
                      .scale = 1.0f / std::sqrt(static_cast<float>(c.shape.dim)), .activations = Activations::kBf16};
    Context context(0);
    ASSERT_TRUE(context.Init().ok());
    const auto run = [&](const auto& attend) {
      p.out = side.Out<float>(rows * width);
      EXPECT_TRUE(side->Synchronize().ok());
      context.BeginOp();
      attend();
      context.Synchronize();
      EXPECT_TRUE(context.TakeError().ok());
      return side.Get(p.out, rows * width);
    };
    const auto alone = run([&] { SparseAttention(context, p, 1); });
    const auto expect_same = [&](const std::vector<float>& other) {
      for (int64_t r = 0; r < rows; ++r) {
        EXPECT_EQ(std::memcmp(&other[static_cast<size_t>(r * width)], &alone[static_cast<size_t>(r * width)], static_cast<size_t>(width) * sizeof(float)), 0) << "row " << r;
      }
    };
    for (const int blocks : {2, 4, 8}) {
      SCOPED_TRACE(testing::Message() << blocks << " blocks");
      expect_same(run([&] { SparseAttention(context, p, blocks); }));
    }
    // Keys decoded once for all rows; and too many of them, which each row then decodes for itself.
    int32_t enough = 1;
    for (size_t r = 0; r < all; ++r) enough += positions_[r] + 1 + c.window;
    for (const int32_t keys_max : {enough, 2}) {
      SCOPED_TRACE(testing::Message() << "up to " << keys_max << " decoded keys");
      const int32_t* decoded = nullptr;
      expect_same(run([&] { decoded = SparseAttentionOfManyRows(context, p, keys_max); }));
      ASSERT_NE(decoded, nullptr);
      EXPECT_EQ(side.Get(decoded, 1)[0] > 0, keys_max == enough);
    }
  }
}

}  // namespace
}  // namespace deepinfer::backend::cuda
