// SPDX-License-Identifier: Apache-2.0
// Time to choose the drafts of a step: survivals from logits, then the rows, against the budget of 50 us for 256
// requests and against std::sort of the same survivals. CPU time of the one thread, median of many.
//   spec_bench
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <random>
#include <vector>

#include "spec/confidence.h"
#include "spec/row_choice.h"

namespace {

using namespace deepinfer;

constexpr int32_t kDrafts = 5;
constexpr int kRuns = 2001;

double Now() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) * 1e-3;
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + kRuns / 2, values.end());
  return values[kRuns / 2];
}

void Bench(int32_t requests) {
  const auto n = static_cast<size_t>(requests);
  spec::Calibration calibration(kDrafts);
  spec::RowChooser chooser(requests, kDrafts);
  std::mt19937 random(1);
  std::normal_distribution<float> normal(1, 2);
  std::vector<float> logits(n * kDrafts), survival(n * kDrafts);
  std::vector<int32_t> limits(n, kDrafts), lengths(n);
  std::vector<double> cost(n * kDrafts + 1), survivals, choice, sorting;
  for (size_t i = 0; i < cost.size(); ++i) cost[i] = 20 + 0.02 * static_cast<double>(n + i);
  int64_t rows = 0;
  for (int run = 0; run < kRuns; ++run) {
    for (float& z : logits) z = normal(random);
    double start = Now();
    for (size_t r = 0; r < n; ++r) {
      calibration.Survivals(2, std::span(logits).subspan(r * kDrafts, kDrafts), std::span(survival).subspan(r * kDrafts, kDrafts));
    }
    survivals.push_back(Now() - start);
    start = Now();
    rows += chooser.Choose({.drafts = kDrafts, .survival = survival, .limits = limits, .sure_tokens = static_cast<double>(n), .cost = cost},
                           lengths).rows;
    choice.push_back(Now() - start);
    start = Now();
    std::sort(survival.begin(), survival.end(), std::greater<>());
    sorting.push_back(Now() - start);
  }
  const double total = Median(survivals) + Median(choice);
  fmt::print("{:5} requests: survivals {:6.1f} us, choice {:6.1f} us, together {:5.2f} of the budget of 50 us; "
             "std::sort alone {:6.1f} us; {:.0f} rows chosen\n",
             requests, Median(survivals), Median(choice), total / 50, Median(sorting), static_cast<double>(rows) / kRuns);
}

}  // namespace

int main() {
  for (const int32_t requests : {1, 16, 64, 256, 1024}) Bench(requests);
  return 0;
}
