// SPDX-License-Identifier: Apache-2.0
// Property: TopK finds exactly the k best of a stream: equal to a stable sort, with ties, both zeros, infinities and NaNs,
// however the stream is cut.
#include "backend/cpu/select.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "backend/cpu/variants.h"

namespace deepinfer::backend::cpu {
namespace {

std::vector<int32_t> Sorted(const std::vector<float>& scores, int64_t k) {
  std::vector<int32_t> all(scores.size());
  std::iota(all.begin(), all.end(), 0);
  std::stable_sort(all.begin(), all.end(), [&](int32_t a, int32_t b) {
    const float x = scores[static_cast<size_t>(a)], y = scores[static_cast<size_t>(b)];
    if (std::isnan(x) || std::isnan(y)) return !std::isnan(x) && std::isnan(y);
    return x > y;
  });
  all.resize(std::min(all.size(), static_cast<size_t>(k)));
  std::sort(all.begin(), all.end());
  return all;
}

TEST(TopK, EqualsAStableSort) {
  std::mt19937 random(1);
  const float special[] = {0.0f, -0.0f, 1.0f, -1.0f, std::numeric_limits<float>::infinity(),
                           -std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN(),
                           -std::numeric_limits<float>::quiet_NaN(), 1e-40f};
  for (const int64_t k : {0, 1, 2, 7, 64, 512}) {
    for (const size_t n : {0, 1, 5, 63, 64, 65, 700, 5000}) {
      for (int kind = 0; kind < 3; ++kind) {
        std::vector<float> scores(n);
        for (float& s : scores) {
          if (kind == 0) s = std::normal_distribution<float>()(random);
          if (kind == 1) s = special[random() % std::size(special)];
          if (kind == 2) s = random() % 8 == 0 ? static_cast<float>(random() % 3) : 0.0f;
        }
        std::vector<int32_t> items(n);
        std::iota(items.begin(), items.end(), 0);
        for (const Variant& variant : AllVariants()) {
          if (!variant.supported) continue;
          for (const int64_t run : {int64_t{1}, int64_t{100}, TopK::kRunMax}) {
            Arena arena;
            TopK best(*variant.kernels, k, arena);
            for (int64_t i = 0; i < static_cast<int64_t>(n); i += run) {
              best.Add(scores.data() + i, items.data() + i, std::min(run, static_cast<int64_t>(n) - i));
            }
            std::vector<int32_t> got(static_cast<size_t>(k));
            got.resize(static_cast<size_t>(best.Finish(got.data())));
            EXPECT_EQ(got, Sorted(scores, k)) << variant.kernels->name << " k " << k << " n " << n << " kind " << kind;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace deepinfer::backend::cpu
