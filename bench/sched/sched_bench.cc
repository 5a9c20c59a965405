// SPDX-License-Identifier: Apache-2.0
// Cost of scheduling without a model, against its budget, and of prefix look-ups, against plain SHA-256 of the same
// bytes measured in the same run. All times are CPU times of the one thread that does it.
//   sched_bench
#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>
#include <ctime>
#include <random>
#include <vector>

#include "sched/null_executor.h"
#include "sched/scheduler.h"

namespace {

using namespace deepinfer;
// CPU time of this thread, so that other users of the machine do not count.
struct Clock {
  static double now() {
    timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) * 1e-3;
  }
};

double Micros(double since) { return Clock::now() - since; }

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

sched::Config PublishedShape(int32_t slots) {
  sched::Config config;
  config.layers = {40, 128, {2, 8, 14, 20}};
  config.blocks = 20000;
  config.slots = slots;
  config.step_rows_max = slots * 6 + 2048;
  config.prefill_rows_max = 2048;
  config.draft_rows = 5;
  config.length_max = 1 << 20;
  config.pages = {4 * slots + 200, 4 * slots + 200};
  config.snapshot_pages = {50, 50};
  return config;
}

sched::RequestSpec Spec(int64_t prompt, int64_t answer, uint32_t seed) {
  sched::RequestSpec spec;
  std::mt19937 random(seed);
  spec.prompt.resize(static_cast<size_t>(prompt));
  for (int32_t& id : spec.prompt) id = static_cast<int32_t>(random() % 129280);
  spec.names = kv::NamePrompt(kv::BlockNamer("model", "cpu", ""), spec.prompt, {});
  spec.length_max = prompt + answer;
  return spec;
}

// Host time of Plan + Complete with `requests` decodes in flight, of which `arrivals` leave and come every step.
void BenchSteps(int32_t requests, int32_t drafts, bool arrivals) {
  const sched::Config config = PublishedShape(requests);
  auto scheduler = *sched::Scheduler::Create(config);
  sched::NullExecutor executor(config);
  sched::StepPlan plan = scheduler->MakePlan();
  std::vector<sched::Ended> ended;
  uint32_t seed = 0;
  const auto submit = [&](int64_t answer) {
    sched::RequestSpec spec = Spec(300, answer, ++seed);
    spec.drafts = drafts;
    (void)*scheduler->Submit(std::move(spec), seed);
  };
  std::mt19937 random(1);
  for (int32_t i = 0; i < requests; ++i) submit(arrivals ? 20 + random() % 400 : 6000);
  std::vector<double> times;
  double rows = 0;
  for (int step = 0; step < 4000; ++step) {
    const auto start = Clock::now();
    const bool planned = scheduler->Plan(&plan);
    double time = Micros(start);
    if (planned) executor.Launch(plan);
    if (executor.steps() == 2) {
      const sched::StepResult& result = executor.Finish();
      const auto complete = Clock::now();
      scheduler->Complete(result);
      scheduler->TakeEnded(&ended);
      time += Micros(complete);
      for (size_t i = 0; i < ended.size(); ++i) submit(20 + random() % 400);
    }
    if (step < 600) continue;  // prompts
    times.push_back(time);
    rows += plan.rows;
  }
  rows /= static_cast<double>(times.size());
  double mean = 0;
  for (const double time : times) mean += time / static_cast<double>(times.size());
  std::vector<double> sorted = times;
  std::sort(sorted.begin(), sorted.end());
  const double budget = 20 + 0.2 * rows;
  fmt::print(
      "{:4} requests, {} drafts, {:13} {:6.0f} rows a step: median {:6.1f} us, mean {:6.1f}, p99 {:6.1f}; budget "
      "{:6.1f}, "
      "ratio {:.2f}\n",
      requests, drafts, arrivals ? "arrivals:" : "decodes only:", rows, Median(times), mean,
      sorted[sorted.size() * 99 / 100], budget, mean / budget);
}

double PlainSha256Ms(size_t bytes) {
  const std::vector<uint8_t> data(bytes, 7);
  std::vector<double> times;
  for (int round = 0; round < 9; ++round) {
    unsigned char digest[32];
    unsigned size = 0;
    const auto start = Clock::now();
    EVP_Digest(data.data(), data.size(), digest, &size, EVP_sha256(), nullptr);
    times.push_back(Micros(start) / 1000);
  }
  return Median(times);
}

void BenchLookup() {
  constexpr int64_t kTokens = 1 << 20;
  const sched::RequestSpec spec = Spec(kTokens, 16, 1);
  kv::BlockPool pool(20000);
  kv::PrefixIndex index(&pool);
  for (const kv::BlockName& name : spec.names.chain) {
    const kv::BlockId id = pool.Take();
    index.Publish(name, id);
    pool.Unref(id);
  }
  std::vector<double> naming, finding;
  for (int round = 0; round < 15; ++round) {
    auto start = Clock::now();
    const kv::PromptNames names = kv::NamePrompt(kv::BlockNamer("model", "cpu", ""), spec.prompt, {});
    naming.push_back(Micros(start) / 1000);
    start = Clock::now();
    int64_t hits = 0;
    for (const kv::BlockName& name : names.chain) hits += index.Find(name).ready;
    finding.push_back(Micros(start) / 1000);
    if (hits != kTokens / kv::kBlockTokens) fmt::print("only {} hits\n", hits);
  }
  const auto fastest = [](const std::vector<double>& times) { return *std::min_element(times.begin(), times.end()); };
  const double plain = PlainSha256Ms(static_cast<size_t>(kTokens) * 3 + static_cast<size_t>(kTokens) / 4);
  fmt::print(
      "look-up of {} tokens: names {:.2f} ms (fastest {:.2f}), index {:.2f} ms (fastest {:.2f}), budget 5; plain "
      "SHA-256 of the same bytes {:.2f} ms, ratio {:.2f}\n",
      kTokens, Median(naming), fastest(naming), Median(finding), fastest(finding), plain,
      (Median(naming) + Median(finding)) / plain);
}

// What a step pays that admits a million tokens which are all cached.
void BenchAdmission() {
  sched::Config config = PublishedShape(8);
  config.length_max = 1 << 21;
  auto scheduler = *sched::Scheduler::Create(config);
  sched::NullExecutor executor(config);
  sched::StepPlan plan = scheduler->MakePlan();
  std::vector<double> times;
  for (int round = 0; round < 6; ++round) {
    (void)*scheduler->Submit(Spec(1 << 20, 2, 1), round);
    const auto start = Clock::now();
    bool planned = scheduler->Plan(&plan);
    if (round > 0) times.push_back(Micros(start) / 1000);
    for (; planned; planned = scheduler->Plan(&plan)) {
      executor.Launch(plan);
      scheduler->Complete(executor.Finish());
    }
  }
  fmt::print("plan that admits a cached prompt of {} tokens: {:.2f} ms\n", 1 << 20, Median(times));
}

}  // namespace

int main() {
  for (const int32_t requests : {16, 64, 256}) BenchSteps(requests, 0, false);
  BenchSteps(256, 0, true);
  BenchSteps(256, 5, false);
  BenchLookup();
  BenchAdmission();
}
