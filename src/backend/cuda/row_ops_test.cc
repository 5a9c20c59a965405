// SPDX-License-Identifier: Apache-2.0
// Properties of the ops that map rows to rows (embedding, norms, rope, hyper-connections, Engram) on the card: equal to the
// reference within fp32's worth, and a row's bits do not depend on the batch.
#include <cuda_runtime_api.h>

#include <tuple>

#include "backend/cuda/launch.h"
#include "backend/cuda/twin_test_util.h"

namespace deepinfer::backend::cuda {
namespace {

using RowOps = TwinTest;

template <typename T>
std::vector<T> Rows(const std::vector<T>& all, int64_t begin, int64_t rows, int64_t width) {
  return std::vector<T>(all.begin() + begin * width, all.begin() + (begin + rows) * width);
}

// run(backend, begin, rows) -> rows of `width`; the card against the reference on an odd batch, then bits.
void Compare(Backend& card, Backend& reference, int64_t width, double tolerance,
             const std::function<std::vector<float>(Backend&, int64_t, int64_t)>& run) {
  ExpectRowsNear(run(card, 3, 77), run(reference, 3, 77), width, tolerance);
  ExpectRowsInvariant<float>(width, [&](int64_t begin, int64_t rows) { return run(card, begin, rows); });
}

TEST_F(RowOps, Embed) {
  constexpr int64_t kHidden = 96, kStreams = 3, kVocab = 130;
  const auto ids = Integers(kRowsMax, 0, kVocab - 1);
  const auto override_rows = Normal(kRowsMax * kHidden);
  std::vector<uint8_t> use(kRowsMax);
  for (uint8_t& flag : use) flag = static_cast<uint8_t>(Uniform(0, 1));
  for (const WeightFormat format : {WeightFormat::kBf16, WeightFormat::kF32}) {
    const HostMatrix table = Weights(format, kVocab, kHidden);
    Compare(*card(), *reference(), kStreams * kHidden, 0, [&](Backend& backend, int64_t begin, int64_t rows) {
      Side side(backend);
      auto* x = side.Out<float>(rows * kStreams * kHidden);
      side->Embed({.rows = rows, .streams = kStreams, .ids = side.Put(Rows(ids, begin, rows, 1)), .table = side.Bind(table.matrix),
                   .override_rows = side.Put(Rows(override_rows, begin, rows, kHidden)),
                   .use_override = side.Put(Rows(use, begin, rows, 1)), .x = x});
      return side.Get(x, rows * kStreams * kHidden);
    });
  }
}

TEST_F(RowOps, RmsNormAlsoInPlace) {
  constexpr int64_t kDim = 1280, kStride = 1792;
  const auto x = Normal(kRowsMax * kStride), weight = Normal(kDim);
  Compare(*card(), *reference(), kDim, 2e-6, [&](Backend& backend, int64_t begin, int64_t rows) {
    Side side(backend);
    auto* y = side.Out<float>(rows * kDim);
    side->RmsNorm({.rows = rows, .dim = kDim, .x = side.Put(Rows(x, begin, rows, kStride)), .x_stride = kStride,
                   .weight = side.Put(weight), .eps = 1e-20f, .y = y});
    return side.Get(y, rows * kDim);
  });
  Side side(*card());
  const auto dense = Normal(5 * kDim);
  auto* y = side.Out<float>(5 * kDim);
  auto* in_place = side.Put(dense);
  side->RmsNorm({5, kDim, side.Put(dense), kDim, side.Put(weight), 1e-20f, y});
  side->RmsNorm({5, kDim, in_place, kDim, side.Put(weight), 1e-20f, in_place});
  EXPECT_EQ(side.Get(y, 5 * kDim), side.Get(in_place, 5 * kDim));
}

TEST_F(RowOps, RopeTable) {
  constexpr int32_t kPairs = 32;
  const auto positions = Integers(kRowsMax, 0, 1 << 20);
  std::vector<float> frequencies;
  for (int i = 0; i < kPairs; ++i) frequencies.push_back(1.0f / std::pow(160000.0f, static_cast<float>(i) / kPairs));
  Compare(*card(), *reference(), 2 * kPairs, 1e-7, [&](Backend& backend, int64_t begin, int64_t rows) {
    Side side(backend);
    auto* table = side.Out<float>(rows * kPairs * 2);
    side->RopeTable({rows, kPairs, side.Put(Rows(positions, begin, rows, 1)), side.Put(frequencies), table});
    return side.Get(table, rows * kPairs * 2);
  });
}

TEST_F(RowOps, RopeWithAndWithoutTheIndexFormat) {
  for (const auto& [heads, dim, rope_dim, round] : {std::tuple{5, 512, 64, false}, {3, 128, 64, true}, {2, 32, 16, true}, {7, 48, 10, false}}) {
    const int64_t width = int64_t{heads} * dim, table_width = rope_dim;
    const auto x = Normal(kRowsMax * width), table = Normal(kRowsMax * table_width);
    const auto run = [&, h = heads, d = dim, rd = rope_dim, ri = round](Backend& backend, int64_t begin, int64_t rows) {
      Side side(backend);
      auto* y = side.Put(Rows(x, begin, rows, width));
      side->Rope({rows, h, d, rd, side.Put(Rows(table, begin, rows, table_width)), ri, y});
      return side.Get(y, rows * width);
    };
    if (round) {
      // A value on a rounding boundary may fall on either side.
      const auto got = run(*card(), 0, AtMost(500)), want = run(*reference(), 0, AtMost(500));
      int64_t different = 0;
      for (size_t i = 0; i < got.size(); ++i) different += got[i] != want[i];
      EXPECT_LE(different * 1000, static_cast<int64_t>(got.size()));
      ExpectRowsInvariant<float>(width, [&](int64_t begin, int64_t rows) { return run(*card(), begin, rows); });
    } else {
      Compare(*card(), *reference(), width, 1e-6, run);
    }
  }
}

class Draws : public TwinTest, public testing::WithParamInterface<int64_t> {};

TEST_P(Draws, AreTheReferencesToTheBit) {
  const int64_t vocab = GetParam(), kLogits = kSmall ? 4 : 40, kDraws = 3 * kLogits;
  auto logits = Normal(kLogits * vocab, 4.0f);
  for (size_t i = 0; i < logits.size(); i += 37) logits[i] = i % 2 == 0 ? -INFINITY : NAN;
  for (float& logit : logits) logit = std::round(logit * 8) / 8;  // ties
  std::fill_n(logits.begin(), vocab, -INFINITY);
  std::fill_n(logits.begin() + vocab, vocab, -0.0f);
  logits[static_cast<size_t>(vocab + 77)] = 0.0f;
  std::vector<SampleDraw> draws;
  for (int64_t i = 0; i < kDraws; ++i) {
    draws.push_back({.seed = random_() * uint64_t{0x9E3779B97F4A7C15}, .position = static_cast<uint32_t>(random_()),
                     .choice = static_cast<uint32_t>(Uniform(0, 3)), .stream = static_cast<uint32_t>(Uniform(0, 9)),
                     .temperature = i % 3 == 0 ? 0.0f : 0.3f * static_cast<float>(i % 7 + 1),
                     .logits_row = static_cast<int32_t>(i < kLogits ? i : Uniform(0, static_cast<int>(kLogits) - 1))});
  }
  const auto run = [&](Backend& backend) {
    Side side(backend);
    auto* tokens = side.Out<int32_t>(kDraws);
    side->Sample({.rows = kDraws, .vocab = vocab, .logits = side.Put(logits), .draws = side.Put(draws), .tokens = tokens});
    return side.Get(tokens, kDraws);
  };
  const auto got = run(*card());
  EXPECT_EQ(got, run(*reference()));
  EXPECT_EQ(got[0], -1);
}

// One block a row, and a cluster of them.
INSTANTIATE_TEST_SUITE_P(Vocabularies, Draws, testing::Values(5003, 40007));

TEST_F(RowOps, SumsOfStreamsAndRows) {
  constexpr int64_t kStreams = 4, kHidden = 100, kStride = 130;
  const auto x = Normal(kRowsMax * kStreams * kHidden), weights = Normal(kRowsMax * kStreams), y = Normal(kRowsMax * kStride);
  for (const bool weighted : {false, true}) {
    Compare(*card(), *reference(), kStride, 2e-6, [&](Backend& backend, int64_t begin, int64_t rows) {
      Side side(backend);
      auto* out = side.Put(Rows(y, begin, rows, kStride));
      side->HcSum({.rows = rows, .streams = kStreams, .hidden = kHidden, .x = side.Put(Rows(x, begin, rows, kStreams * kHidden)),
                   .weights = weighted ? side.Put(Rows(weights, begin, rows, kStreams)) : nullptr, .y = out, .y_stride = kStride});
      return side.Get(out, rows * kStride);
    });
  }
  Compare(*card(), *reference(), kStride, 0, [&](Backend& backend, int64_t begin, int64_t rows) {
    Side side(backend);
    auto* out = side.Put(Rows(y, begin, rows, kStride));
    side->Add({.rows = rows, .dim = kHidden, .x = side.Put(Rows(x, begin, rows, kStreams * kHidden)),
               .x_stride = kStreams * kHidden, .y = out, .y_stride = kStride});
    return side.Get(out, rows * kStride);
  });
}

TEST_F(RowOps, HyperConnections) {
  for (const int64_t streams : {1, 2, 3, 4}) {
    if (kSmall && streams < 3) continue;
    const int64_t hidden = streams == 4 ? 656 : 96, flat = streams * hidden, outputs = (2 + streams) * streams;
    const auto x = Normal(kRowsMax * flat), scale = Normal(3), norm_weight = Normal(hidden);
    const auto collapse = Normal(kRowsMax * streams), y = Normal(kRowsMax * hidden);
    auto base = Normal(outputs);
    if (streams > 1) base[0] = base[static_cast<size_t>(streams)] = -200.0f;  // the exponential of a sigmoid is infinite
    const HostMatrix fn = Weights(WeightFormat::kF32, outputs, flat);
    const int64_t small = 2 * streams + streams * streams;
    // pre, post and comb of a row, side by side.
    Compare(*card(), *reference(), small, 5e-6, [&](Backend& backend, int64_t begin, int64_t rows) {
      Side side(backend);
      auto* pre = side.Out<float>(rows * streams);
      auto* post = side.Out<float>(rows * streams);
      auto* comb = side.Out<float>(rows * streams * streams);
      auto* collapsed = side.Out<float>(rows * hidden);
      side->HcMix({.rows = rows, .streams = streams, .hidden = hidden, .x = side.Put(Rows(x, begin, rows, flat)),
                   .fn = side.Bind(fn.matrix), .base = side.Put(base), .scale = side.Put(scale), .norm_eps = 1e-20f,
                   .hc_eps = 1e-6f, .sinkhorn_iters = 20, .collapse = side.Put(Rows(collapse, begin, rows, streams)),
                   .norm_weight = side.Put(norm_weight), .pre = pre, .post = post, .comb = comb, .collapsed = collapsed});
      const auto a = side.Get(pre, rows * streams), b = side.Get(post, rows * streams), c = side.Get(comb, rows * streams * streams);
      std::vector<float> result;
      for (int64_t r = 0; r < rows; ++r) {
        result.insert(result.end(), a.begin() + r * streams, a.begin() + (r + 1) * streams);
        result.insert(result.end(), b.begin() + r * streams, b.begin() + (r + 1) * streams);
        result.insert(result.end(), c.begin() + r * streams * streams, c.begin() + (r + 1) * streams * streams);
      }
      return result;
    });
    // The collapse of HcMix and of HcCollapse.
    for (const bool mix : {true, false}) {
      Compare(*card(), *reference(), hidden, 2e-6, [&](Backend& backend, int64_t begin, int64_t rows) {
        Side side(backend);
        auto* collapsed = side.Out<float>(rows * hidden);
        const float* in = side.Put(Rows(x, begin, rows, flat));
        const float* weights = side.Put(Rows(collapse, begin, rows, streams));
        if (mix) {
          side->HcMix({.rows = rows, .streams = streams, .hidden = hidden, .x = in, .fn = side.Bind(fn.matrix), .base = side.Put(base),
                       .scale = side.Put(scale), .norm_eps = 1e-20f, .hc_eps = 1e-6f, .sinkhorn_iters = 3, .collapse = weights,
                       .norm_weight = side.Put(norm_weight), .pre = side.Out<float>(rows * streams), .post = side.Out<float>(rows * streams),
                       .comb = side.Out<float>(rows * streams * streams), .collapsed = collapsed});
        } else {
          side->HcCollapse({rows, streams, hidden, in, weights, side.Put(norm_weight), 1e-20f, collapsed});
        }
        return side.Get(collapsed, rows * hidden);
      });
    }
    const auto comb = Normal(kRowsMax * streams * streams);
    Compare(*card(), *reference(), flat, 2e-6, [&](Backend& backend, int64_t begin, int64_t rows) {
      Side side(backend);
      auto* in_place = side.Put(Rows(x, begin, rows, flat));
      side->HcExpand({rows, streams, hidden, side.Put(Rows(y, begin, rows, hidden)), side.Put(Rows(collapse, begin, rows, streams)),
                      side.Put(Rows(comb, begin, rows, streams * streams)), in_place});
      return side.Get(in_place, rows * flat);
    });
  }
}

TEST_F(RowOps, ExpandedOnTheWayToTheMixes) {
  constexpr int64_t kStreams = 4, kMixes = (2 + kStreams) * kStreams, kMany = 1111;
  using Case = std::pair<int64_t, int64_t>;
  for (const auto& [hidden, rows] : kSmall ? std::vector<Case>{{320, 1}, {336, kMany}}
                                           : std::vector<Case>{{320, 1}, {320, 31}, {320, 256}, {336, kMany}, {5120, 256}, {5120, kMany}}) {
    const int64_t flat = kStreams * hidden;
    const auto x = Normal(rows * flat), y = Normal(rows * hidden), small = Normal(rows * kStreams), comb = Normal(rows * kStreams * kStreams);
    const auto base = Normal(kMixes), scale = Normal(3), norm_weight = Normal(hidden);
    const HostMatrix fn = Weights(WeightFormat::kF32, kMixes, flat);
    const auto run = [&, hidden = hidden, rows = rows](bool at_once) {
      Side side(*card());
      auto* in_place = side.Put(Rows(x, 0, rows, flat));
      auto* post = side.Put(Rows(small, 0, rows, kStreams));
      auto* mixed = side.Put(Rows(comb, 0, rows, kStreams * kStreams));
      auto* pre = side.Out<float>(rows * kStreams);
      auto* collapsed = side.Out<float>(rows * hidden);
      const HcExpandParams expand{rows, kStreams, hidden, side.Put(Rows(y, 0, rows, hidden)), post, mixed, in_place};
      const HcMixParams mix{.rows = rows, .streams = kStreams, .hidden = hidden, .x = in_place, .fn = side.Bind(fn.matrix),
                            .base = side.Put(base), .scale = side.Put(scale), .norm_eps = 1e-20f, .hc_eps = 1e-6f, .sinkhorn_iters = 20,
                            .collapse = side.Put(Rows(small, 0, rows, kStreams)), .norm_weight = side.Put(norm_weight), .pre = pre,
                            .post = post, .comb = mixed, .collapsed = collapsed};
      if (at_once) {
        side->HcExpandMix(expand, mix);
      } else {
        side->HcExpand(expand);
        side->HcMix(mix);
      }
      return std::tuple(side.Get(in_place, rows * flat), side.Get(pre, rows * kStreams), side.Get(post, rows * kStreams),
                        side.Get(mixed, rows * kStreams * kStreams), side.Get(collapsed, rows * hidden));
    };
    EXPECT_EQ(run(true), run(false)) << rows << " rows of " << hidden;
  }
}

// The linear that makes y has several spans, which are added up on the way.
TEST_F(RowOps, ALinearIntoTheStreamsAndTheMixes) {
  constexpr int64_t kStreams = 4, kMixes = (2 + kStreams) * kStreams, kInputs = 2048, kMany = 1111;
  for (const int64_t hidden : {320, 5120}) {
    if (kSmall && hidden == 5120) continue;
    const int64_t flat = kStreams * hidden;
    const HostMatrix w = Weights(WeightFormat::kFp8Tile32, hidden, kInputs), fn = Weights(WeightFormat::kF32, kMixes, flat);
    for (const int64_t rows : kSmall ? std::vector<int64_t>{1, kMany} : std::vector<int64_t>{1, 31, 256, kMany}) {
      const auto x = Normal(rows * flat), inputs = Normal(rows * kInputs), small = Normal(rows * kStreams);
      const auto comb = Normal(rows * kStreams * kStreams), base = Normal(kMixes), scale = Normal(3), norm_weight = Normal(hidden);
      const auto run = [&, hidden = hidden](bool at_once) {
        Side side(*card());
        auto *streams = side.Put(x), *post = side.Put(small), *mixed = side.Put(comb);
        auto *y = side.Out<float>(rows * hidden), *pre = side.Out<float>(rows * kStreams), *collapsed = side.Out<float>(rows * hidden);
        const LinearParams linear{.rows = rows, .w = side.Bind(w.matrix), .activations = Activations::kBf16, .x = side.Put(inputs),
                                  .x_stride = kInputs, .y = y, .y_stride = hidden};
        const HcExpandParams expand{rows, kStreams, hidden, y, post, mixed, streams};
        const HcMixParams mix{.rows = rows, .streams = kStreams, .hidden = hidden, .x = streams, .fn = side.Bind(fn.matrix),
                              .base = side.Put(base), .scale = side.Put(scale), .norm_eps = 1e-20f, .hc_eps = 1e-6f, .sinkhorn_iters = 20,
                              .collapse = side.Put(small), .norm_weight = side.Put(norm_weight), .pre = pre, .post = post, .comb = mixed,
                              .collapsed = collapsed};
        if (at_once) {
          side->LinearExpandMix(linear, expand, mix);
        } else {
          side->Linear(linear);
          side->HcExpandMix(expand, mix);
        }
        return std::tuple(side.Get(streams, rows * flat), side.Get(pre, rows * kStreams), side.Get(post, rows * kStreams),
                          side.Get(mixed, rows * kStreams * kStreams), side.Get(collapsed, rows * hidden));
      };
      EXPECT_EQ(run(true), run(false)) << rows << " rows of " << hidden;
    }
  }
}

// As many rows as the mixes of many rows have words for, and one more, which takes the other kernels: 1,027 rows over and over.
TEST_F(RowOps, MixesOfMoreRowsThanTheirBlocksCanCount) {
  if (kSmall) GTEST_SKIP() << "too large for a sanitizer";
  constexpr int64_t kStreams = 4, kMixes = (2 + kStreams) * kStreams, kHidden = 5120, kFlat = kStreams * kHidden, kPeriod = 1027;
  const auto x = Normal(kPeriod * kFlat), collapse = Normal(kPeriod * kStreams), base = Normal(kMixes), scale = Normal(3);
  const auto norm_weight = Normal(kHidden);
  const HostMatrix fn = Weights(WeightFormat::kF32, kMixes, kFlat);
  const auto run = [&](int64_t rows) {
    Side side(*card());
    // The device's copies, for time.
    const auto repeat = [&](const std::vector<float>& values, int64_t width) {
      float* one = side.Put(values);
      void* all = nullptr;
      EXPECT_EQ(cudaMalloc(&all, static_cast<size_t>(rows * width) * sizeof(float)), cudaSuccess);
      EXPECT_TRUE(card()->Synchronize().ok());
      for (int64_t begin = 0; begin < rows; begin += kPeriod) {
        const int64_t n = std::min(kPeriod, rows - begin) * width;
        EXPECT_EQ(cudaMemcpy(static_cast<float*>(all) + begin * width, one, static_cast<size_t>(n) * sizeof(float),
                             cudaMemcpyDeviceToDevice), cudaSuccess);
      }
      EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
      return static_cast<float*>(all);
    };
    float *rows_x = repeat(x, kFlat), *rows_collapse = repeat(collapse, kStreams);
    HcMixParams p{.rows = rows, .streams = kStreams, .hidden = kHidden, .x = rows_x, .fn = side.Bind(fn.matrix), .base = side.Put(base),
                  .scale = side.Put(scale), .norm_eps = 1e-20f, .hc_eps = 1e-6f, .sinkhorn_iters = 3, .collapse = rows_collapse,
                  .norm_weight = side.Put(norm_weight), .pre = side.Out<float>(rows * kStreams), .post = side.Out<float>(rows * kStreams),
                  .comb = side.Out<float>(rows * kStreams * kStreams), .collapsed = side.Out<float>(rows * kHidden)};
    side->HcMix(p);
    std::vector<std::vector<float>> result = {side.Get(p.pre, rows * kStreams), side.Get(p.post, rows * kStreams),
                                              side.Get(p.comb, rows * kStreams * kStreams), side.Get(p.collapsed, rows * kHidden)};
    EXPECT_EQ(cudaFree(rows_x), cudaSuccess);
    EXPECT_EQ(cudaFree(rows_collapse), cudaSuccess);
    return result;
  };
  const auto expected = run(kPeriod);
  for (const int64_t rows : {16400, 16401}) {
    const auto all = run(rows);
    for (size_t i = 0; i < expected.size(); ++i) {
      for (size_t begin = 0; begin < all[i].size(); begin += expected[i].size()) {
        const size_t n = std::min(expected[i].size(), all[i].size() - begin);
        ASSERT_EQ(std::memcmp(&all[i][begin], expected[i].data(), n * sizeof(float)), 0) << rows << " rows, output " << i;
      }
    }
  }
}

// Mixes of many rows whose second kernel, which counts them, did not start: the next ones would have their number. Their words are cleared.
TEST_F(RowOps, MixesBehindOnesThatWereNotCounted) {
  constexpr int64_t kStreams = 4, kMixes = (2 + kStreams) * kStreams, kHidden = 640, kFlat = kStreams * kHidden, kRows = 1100;
  const HostMatrix fn = Weights(WeightFormat::kF32, kMixes, kFlat);
  Context context(0);
  ASSERT_TRUE(context.Init().ok());
  Side side(*card());
  const Matrix bound = side.Bind(fn.matrix);
  const auto mix = [&] {
    return HcMixParams{.rows = kRows, .streams = kStreams, .hidden = kHidden, .x = side.Put(Normal(kRows * kFlat)), .fn = bound,
                       .base = side.Put(Normal(kMixes)), .scale = side.Put(Normal(3)), .norm_eps = 1e-20f, .hc_eps = 1e-6f,
                       .sinkhorn_iters = 3, .collapse = side.Put(Normal(kRows * kStreams)), .norm_weight = side.Put(Normal(kHidden)),
                       .pre = side.Out<float>(kRows * kStreams), .post = side.Out<float>(kRows * kStreams),
                       .comb = side.Out<float>(kRows * kStreams * kStreams), .collapsed = side.Out<float>(kRows * kHidden)};
  };
  const HcMixParams first = mix();
  HcMixParams second = mix();
  side->HcMix(second);
  const auto expected = side.Get(second.collapsed, kRows * kHidden);
  second.collapsed = side.Out<float>(kRows * kHidden);
  ASSERT_TRUE(side->Synchronize().ok());
  const auto run = [&](const HcMixParams& p) {
    context.BeginOp();
    HcMix(context, p);
    context.Synchronize();
    EXPECT_TRUE(context.TakeError().ok());
  };
  run(first);
  EXPECT_EQ(cudaMemset(context.marks(), 0, sizeof(uint64_t)), cudaSuccess);  // the number
  EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
  context.ClearMarks();
  run(second);
  EXPECT_EQ(side.Get(second.collapsed, kRows * kHidden), expected);
}

TEST_F(RowOps, EngramLookupAndApply) {
  constexpr int32_t kNgrams = 4, kHeads = 2, kDim = 64, kColumns = (kNgrams - 1) * kHeads, kVocab = 200;
  constexpr int64_t kStreams = 4, kHidden = 160;
  const std::vector<int64_t> primes = {41, 43, 47, 53, 59, 61}, offsets = {0, 41, 84, 131, 184, 243};
  const std::vector<int64_t> multipliers = {76632096046245, 4839876093313, 35959672319349, 73987337458391};
  const auto tokens = Integers(kRowsMax * kNgrams, -1, kVocab - 1), compressed = Integers(kVocab, 0, 99091);
  for (const WeightFormat format : {WeightFormat::kFp8Row32, WeightFormat::kBf16}) {
    const HostMatrix table = Weights(format, 304, kDim);
    Compare(*card(), *reference(), kColumns * (kDim + 1), 0, [&](Backend& backend, int64_t begin, int64_t rows) {
      Side side(backend);
      auto* entries = side.Out<int64_t>(rows * kColumns);
      auto* out = side.Out<float>(rows * kColumns * kDim);
      side->EngramLookup({.rows = rows, .ngram_max = kNgrams, .heads = kHeads, .dim = kDim,
                          .tokens = side.Put(Rows(tokens, begin, rows, kNgrams)), .compressed_ids = side.Put(compressed), .pad = 2,
                          .multipliers = side.Put(multipliers), .primes = side.Put(primes), .offsets = side.Put(offsets),
                          .table = side.Bind(table.matrix), .table_rows = entries, .out = out});
      const auto ids = side.Get(entries, rows * kColumns);
      const auto values = side.Get(out, rows * kColumns * kDim);
      std::vector<float> result;
      for (int64_t i = 0; i < rows * kColumns; ++i) {
        result.push_back(static_cast<float>(ids[static_cast<size_t>(i)]));
        result.insert(result.end(), values.begin() + i * kDim, values.begin() + (i + 1) * kDim);
      }
      return result;
    });
  }
  const auto x = Normal(kRowsMax * kStreams * kHidden), kv = Normal(kRowsMax * (kStreams + 1) * kHidden), weight = Normal(kStreams * kHidden);
  std::vector<uint8_t> dead(kRowsMax);
  for (uint8_t& flag : dead) flag = Uniform(0, 3) == 0;
  Compare(*card(), *reference(), kStreams * kHidden, 5e-6, [&](Backend& backend, int64_t begin, int64_t rows) {
    Side side(backend);
    auto* in_place = side.Put(Rows(x, begin, rows, kStreams * kHidden));
    side->EngramApply({.rows = rows, .streams = kStreams, .hidden = kHidden, .kv = side.Put(Rows(kv, begin, rows, (kStreams + 1) * kHidden)),
                       .qk_weight = side.Put(weight), .dead = side.Put(Rows(dead, begin, rows, 1)), .eps = 1e-20f, .x = in_place});
    return side.Get(in_place, rows * kStreams * kHidden);
  });
}

TEST_F(RowOps, GatherRows) {
  for (const int64_t row_bytes : {3, 20, 64, 5120}) {
    std::vector<uint8_t> src(static_cast<size_t>(50 * row_bytes));
    for (uint8_t& byte : src) byte = static_cast<uint8_t>(Uniform(0, 255));
    const auto index = Integers(33, 0, 49);
    const auto run = [&](Backend& backend) {
      Side side(backend);
      auto* dst = side.Out<uint8_t>(33 * row_bytes);
      side->GatherRows({33, row_bytes, side.Put(src), side.Put(index), dst});
      return side.Get(dst, 33 * row_bytes);
    };
    EXPECT_EQ(run(*card()), run(*reference()));
  }
}

}  // namespace
}  // namespace deepinfer::backend::cuda
