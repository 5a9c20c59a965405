// SPDX-License-Identifier: Apache-2.0
// Property: the ops on single rows (embedding, Engram, hyper-connections, norms, rotation) agree with the reference
// backend on ragged shapes, and a row's bits depend neither on the other rows nor on the number of threads.
#include "backend/cpu/testing.h"
#include "backend/reference/reference_backend.h"

namespace deepinfer::backend::cpu {
namespace {

constexpr int64_t kBatches[] = {1, 2, 3, 5, 16, 17, 64, 257};

// Runs `op(backend, first row, rows)`, which returns its outputs row by row, and holds it against the reference and
// against itself in batches.
template <typename Op>
void CheckRows(std::string_view variant, int64_t rows, double bound, const Op& op) {
  const auto reference = CreateReference();
  const auto one = Make(variant, 1);
  ExpectNear(op(*one, 0, rows), op(*reference, 0, rows), bound, "reference");
  std::vector<float> alone;
  for (int64_t r = 0; r < rows; ++r) {
    const std::vector<float> y = op(*one, r, 1);
    alone.insert(alone.end(), y.begin(), y.end());
  }
  for (int threads = 1; threads <= 4; ++threads) {
    const auto backend = Make(variant, threads);
    EXPECT_TRUE(op(*backend, 0, 0).empty());
    for (const int64_t n : kBatches) {
      if (n > rows) continue;
      const auto width = static_cast<int64_t>(alone.size()) / rows;
      const std::vector<float> want(alone.begin(), alone.begin() + n * width);
      ExpectSameBytes(op(*backend, 0, n), want, "batch");
    }
  }
}

void Append(std::vector<float>* to, const float* row, int64_t n) { to->insert(to->end(), row, row + n); }

class CpuRows : public testing::TestWithParam<std::string_view> {};

TEST_P(CpuRows, Embed) {
  Random random(1);
  for (const WeightFormat format : kFormats) {
    const TestMatrix table(random, format, 64, HasBlocks(format) ? 96 : 77);
    const int64_t hidden = table.matrix.cols;
    const auto override_rows = random.Normals(257 * hidden);
    std::vector<int32_t> ids(257);
    std::vector<uint8_t> use(257);
    for (size_t i = 0; i < ids.size(); ++i) {
      use[i] = random.Int(0, 3) == 0;
      ids[i] = use[i] ? -1 : static_cast<int32_t>(random.Int(0, 63));
    }
    CheckRows(GetParam(), 257, 0, [&](Backend& backend, int64_t first, int64_t n) {
      auto x = Poisoned(n * 3 * hidden);
      backend.Embed({.rows = n, .streams = 3, .ids = ids.data() + first, .table = table.matrix,
                     .override_rows = override_rows.data() + first * hidden, .use_override = use.data() + first,
                     .x = x.data()});
      return x;
    });
  }
}

TEST_P(CpuRows, EngramLookup) {
  Random random(2);
  const TestMatrix table(random, WeightFormat::kFp8Row32, 600, 64);
  std::vector<int32_t> compressed(50), tokens(257 * 4);
  for (int32_t& c : compressed) c = static_cast<int32_t>(random.Int(0, 40));
  for (int32_t& t : tokens) t = static_cast<int32_t>(random.Int(-1, 49));
  const std::vector<int64_t> multipliers = {0x7FFFFFFFFFFFLL, -12345677, 998244353, 3};
  const std::vector<int64_t> primes = {97, 89, 83, 79, 73, 71}, offsets = {0, 97, 186, 269, 348, 421};
  CheckRows(GetParam(), 257, 0, [&](Backend& backend, int64_t first, int64_t n) {
    auto out = Poisoned(n * 6 * 64);
    std::vector<int64_t> rows(static_cast<size_t>(n * 6), -9);
    backend.EngramLookup({.rows = n, .ngram_max = 4, .heads = 2, .dim = 64, .tokens = tokens.data() + first * 4,
                          .compressed_ids = compressed.data(), .pad = 2, .multipliers = multipliers.data(),
                          .primes = primes.data(), .offsets = offsets.data(), .table = table.matrix,
                          .table_rows = rows.data(), .out = out.data()});
    std::vector<float> all;
    for (int64_t r = 0; r < n; ++r) {
      Append(&all, out.data() + r * 6 * 64, 6 * 64);
      for (int64_t c = 0; c < 6; ++c) all.push_back(static_cast<float>(rows[static_cast<size_t>(r * 6 + c)]));
    }
    return all;
  });
}

TEST_P(CpuRows, EngramApply) {
  Random random(3);
  for (const int64_t hidden : {1, 33, 256}) {
    const auto x = random.Wide(257 * 3 * hidden), kv = random.Wide(257 * 4 * hidden), qk = random.Normals(3 * hidden);
    std::vector<uint8_t> dead(257);
    for (uint8_t& d : dead) d = random.Int(0, 4) == 0;
    CheckRows(GetParam(), 257, 2e-6, [&](Backend& backend, int64_t first, int64_t n) {
      std::vector<float> y(x.begin() + first * 3 * hidden, x.begin() + (first + n) * 3 * hidden);
      backend.EngramApply({.rows = n, .streams = 3, .hidden = hidden, .kv = kv.data() + first * 4 * hidden,
                           .qk_weight = qk.data(), .dead = dead.data() + first, .eps = 1e-20f, .x = y.data()});
      return y;
    });
  }
}

TEST_P(CpuRows, HcMix) {
  Random random(4);
  for (const int64_t streams : {1, 2, 3, 4, 5, 7}) {
    const int64_t hidden = streams == 4 ? 256 : 37, outputs = (2 + streams) * streams;
    const TestMatrix fn(random, WeightFormat::kF32, outputs, streams * hidden);
    const auto x = random.Wide(257 * streams * hidden), base = random.Normals(outputs), scale = random.Normals(3, 2.0f);
    const auto collapse = random.Normals(257 * streams), weight = random.Normals(hidden);
    CheckRows(GetParam(), 257, 2e-6, [&](Backend& backend, int64_t first, int64_t n) {
      auto pre = Poisoned(n * streams), post = pre, comb = Poisoned(n * streams * streams), collapsed = Poisoned(n * hidden);
      backend.HcMix({.rows = n, .streams = streams, .hidden = hidden, .x = x.data() + first * streams * hidden,
                     .fn = fn.matrix, .base = base.data(), .scale = scale.data(), .norm_eps = 1e-20f, .hc_eps = 1e-6f,
                     .sinkhorn_iters = 20, .collapse = collapse.data() + first * streams, .norm_weight = weight.data(),
                     .pre = pre.data(), .post = post.data(), .comb = comb.data(), .collapsed = collapsed.data()});
      std::vector<float> all;
      for (int64_t r = 0; r < n; ++r) {
        Append(&all, pre.data() + r * streams, streams);
        Append(&all, post.data() + r * streams, streams);
        Append(&all, comb.data() + r * streams * streams, streams * streams);
        Append(&all, collapsed.data() + r * hidden, hidden);
      }
      return all;
    });
  }
}

TEST_P(CpuRows, HcCollapseAndExpand) {
  Random random(5);
  for (const int64_t streams : {1, 2, 3, 4, 8}) {
    for (const int64_t hidden : {5, 256}) {
      const auto x = random.Wide(257 * streams * hidden), y = random.Wide(257 * hidden);
      const auto collapse = random.Normals(257 * streams), weight = random.Normals(hidden);
      const auto post = random.Normals(257 * streams), comb = random.Normals(257 * streams * streams);
      CheckRows(GetParam(), 257, 2e-6, [&](Backend& backend, int64_t first, int64_t n) {
        auto out = Poisoned(n * hidden);
        backend.HcCollapse({.rows = n, .streams = streams, .hidden = hidden, .x = x.data() + first * streams * hidden,
                            .collapse = collapse.data() + first * streams, .norm_weight = weight.data(),
                            .norm_eps = 1e-6f, .collapsed = out.data()});
        return out;
      });
      CheckRows(GetParam(), 257, 1e-6, [&](Backend& backend, int64_t first, int64_t n) {
        std::vector<float> out(x.begin() + first * streams * hidden, x.begin() + (first + n) * streams * hidden);
        backend.HcExpand({.rows = n, .streams = streams, .hidden = hidden, .y = y.data() + first * hidden,
                          .post = post.data() + first * streams, .comb = comb.data() + first * streams * streams,
                          .x = out.data()});
        return out;
      });
      for (const float* weights : {collapse.data(), static_cast<const float*>(nullptr)}) {
        CheckRows(GetParam(), 257, 1e-6, [&](Backend& backend, int64_t first, int64_t n) {
          auto out = Poisoned(n * (hidden + 5));
          backend.HcSum({.rows = n, .streams = streams, .hidden = hidden, .x = x.data() + first * streams * hidden,
                         .weights = weights == nullptr ? nullptr : weights + first * streams, .y = out.data(),
                         .y_stride = hidden + 5});
          return out;
        });
      }
    }
  }
}

// One addition each: equal to the reference to the bit. What lies between the rows is left alone.
TEST_P(CpuRows, Add) {
  Random random(10);
  for (const int64_t dim : {1, 15, 16, 129}) {
    const auto x = random.Wide(257 * (dim + 3)), y = random.Wide(257 * (dim + 2));
    CheckRows(GetParam(), 257, 0, [&](Backend& backend, int64_t first, int64_t n) {
      std::vector<float> out(y.begin() + first * (dim + 2), y.begin() + (first + n) * (dim + 2));
      backend.Add({.rows = n, .dim = dim, .x = x.data() + first * (dim + 3), .x_stride = dim + 3, .y = out.data(),
                   .y_stride = dim + 2});
      return out;
    });
  }
}

TEST_P(CpuRows, RmsNorm) {
  Random random(6);
  for (const int64_t dim : {1, 15, 16, 63, 64, 65, 130, 1280}) {
    const auto x = random.Wide(257 * (dim + 3)), weight = random.Normals(dim);
    CheckRows(GetParam(), 257, 1e-6, [&](Backend& backend, int64_t first, int64_t n) {
      auto y = Poisoned(n * dim);
      backend.RmsNorm({.rows = n, .dim = dim, .x = x.data() + first * (dim + 3), .x_stride = dim + 3,
                       .weight = weight.data(), .eps = 1e-20f, .y = y.data()});
      return y;
    });
  }
}

TEST_P(CpuRows, RopeTableAndRope) {
  Random random(7);
  for (const int64_t rope_dim : {2, 16, 22, 64}) {
    const int64_t dim = 96;
    std::vector<int32_t> positions(257);
    for (int32_t& p : positions) p = static_cast<int32_t>(random.Int(0, 1 << 20));
    std::vector<float> inv_freq(static_cast<size_t>(rope_dim / 2));
    for (float& f : inv_freq) f = std::exp2(-12.0f * std::fabs(random.Normal()));
    auto table = Poisoned(257 * rope_dim);
    CheckRows(GetParam(), 257, 0, [&](Backend& backend, int64_t first, int64_t n) {
      auto out = Poisoned(n * rope_dim);
      backend.RopeTable({.rows = n, .pairs = static_cast<int32_t>(rope_dim / 2), .positions = positions.data() + first,
                         .inv_freq = inv_freq.data(), .table = out.data()});
      std::copy(out.begin(), out.end(), table.begin() + first * rope_dim);
      return out;
    });
    const auto x = random.Normals(257 * 3 * dim);
    CheckRows(GetParam(), 257, 1e-6, [&](Backend& backend, int64_t first, int64_t n) {
      std::vector<float> y(x.begin() + first * 3 * dim, x.begin() + (first + n) * 3 * dim);
      backend.Rope({.rows = n, .heads = 3, .dim = dim, .rope_dim = rope_dim, .table = table.data() + first * rope_dim,
                    .x = y.data()});
      return y;
    });
  }
}

// The FP4 round trip: on values that the rotation leaves alone, equal to the definition to the bit.
TEST_P(CpuRows, RopeRoundsIndexQueries) {
  Random random(8);
  auto x = random.Wide(100 * 64);
  std::vector<float> table(100 * 32);
  for (size_t i = 0; i < table.size(); i += 2) table[i] = 1.0f;
  std::vector<float> want = x;
  for (int64_t r = 0; r < 100; ++r) numeric::RoundTripIndex(want.data() + r * 64, 64);
  Make(GetParam(), 2)->Rope({.rows = 100, .heads = 1, .dim = 64, .rope_dim = 32, .table = table.data(),
                             .round_index = true, .x = x.data()});
  for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(x[i], want[i]);
}

TEST_P(CpuRows, GatherRows) {
  Random random(9);
  const auto src = random.Normals(20 * 7);
  std::vector<int32_t> index(257);
  for (int32_t& i : index) i = static_cast<int32_t>(random.Int(0, 19));
  CheckRows(GetParam(), 257, 0, [&](Backend& backend, int64_t first, int64_t n) {
    auto out = Poisoned(n * 7);
    backend.GatherRows({.rows = n, .row_bytes = 28, .src = src.data(), .index = index.data() + first, .dst = out.data()});
    return out;
  });
}

INSTANTIATE_TEST_SUITE_P(Variants, CpuRows, testing::ValuesIn(CpuVariants()),
                         [](const auto& variant) { return std::string(variant.param); });

TEST(CpuBackend, RefusesWhatItCannotDo) {
  EXPECT_EQ(CreateCpu({.num_threads = -1}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(CreateCpu({.num_threads = kCpuThreadsMax + 1}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(CreateCpu({.num_threads = 1, .variant = "neon"}).status().code(), Code::kInvalidArgument);
}

TEST(CpuBackend, RunsTheBestVariantUnlessToldOtherwise) {
  EXPECT_EQ((*CreateCpu())->kernel_variant(), CpuVariants().front());
  for (const std::string_view variant : CpuVariants()) EXPECT_EQ(Make(variant, 1)->kernel_variant(), variant);
  EXPECT_EQ(CpuVariants().back(), "portable");
}

}  // namespace
}  // namespace deepinfer::backend::cpu
