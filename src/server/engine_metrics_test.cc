// SPDX-License-Identifier: Apache-2.0
// Property (case E17): an engine that runs requests and ends no step for longer than the patience is told; an idle one, one that
// works and one that works again is not.
#include "server/engine_metrics.h"

#include <gtest/gtest.h>

#include <thread>

namespace deepinfer::server {
namespace {

class FakeEngine final : public Engine {
 public:
  EngineStats stats;

  GenerationId Submit(const GenerationRequest&, OutputFn, std::string*, bool*) override { return 0; }
  void Cancel(GenerationId) override {}
  void Cancel(GenerationId, int) override {}
  void Wait(GenerationId) override {}
  bool Step() override { return false; }
  EngineStats Stats() const override { return stats; }
  std::vector<int32_t> Tokenize(std::string_view) const override { return {}; }
  std::optional<int32_t> FindToken(std::string_view) const override { return std::nullopt; }
  std::shared_ptr<const grammar::Vocabulary> grammar_vocabulary() const override { return nullptr; }
  const std::string& model_identity() const override { return name_; }
  const std::string& numeric_identity() const override { return name_; }
  int64_t context_max() const override { return 1; }
  const std::vector<std::string>& warnings() const override { return warnings_; }

 private:
  std::string name_;
  std::vector<std::string> warnings_;
};

constexpr auto kPatience = std::chrono::milliseconds(20);

void WaitLonger() { std::this_thread::sleep_for(3 * kPatience); }

TEST(EngineWatch, TellsAHangingEngineFromAnIdleOne) {
  FakeEngine engine;
  EngineWatch watch(engine, kPatience);
  WaitLonger();
  EXPECT_TRUE(watch.Check().ok()) << "idle";
  engine.stats.requests_running = 2;
  EXPECT_TRUE(watch.Check().ok()) << "has just begun";
  WaitLonger();
  const Status hangs = watch.Check();
  EXPECT_EQ(hangs.code(), Code::kUnavailable);
  EXPECT_NE(hangs.message().find("2 requests run"), std::string::npos) << hangs.message();
  engine.stats.steps = 1;
  EXPECT_TRUE(watch.Check().ok()) << "works again";
  WaitLonger();
  EXPECT_FALSE(watch.Check().ok());
  engine.stats.requests_running = 0;
  EXPECT_TRUE(watch.Check().ok()) << "idle again";
}

TEST(EngineMetrics, CountersAreWhatTheEngineSays) {
  FakeEngine engine;
  engine.stats.answer_tokens = 7;
  engine.stats.masks_late = 6;
  engine.stats.drafts_verified = {5, 3};
  engine.stats.drafts_accepted = {4, 1};
  engine.stats.drafts_made = 9;
  engine.stats.draft_gain = 1.25;
  engine.stats.draft_calibration_error = 0.04;
  const std::vector<prometheus::MetricFamily> families = EngineMetrics(engine).Collect();
  const auto value = [&](std::string_view name, size_t index) {
    for (const auto& family : families) {
      if (family.name != name) continue;
      const prometheus::ClientMetric& metric = family.metric.at(index);
      return family.type == prometheus::MetricType::Counter ? metric.counter.value : metric.gauge.value;
    }
    return -1.0;
  };
  EXPECT_EQ(value("deepinfer_answer_tokens_total", 0), 7);
  EXPECT_EQ(value("deepinfer_masks_late_total", 0), 6);
  EXPECT_EQ(value("deepinfer_drafts_verified_total", 1), 3);
  EXPECT_EQ(value("deepinfer_drafts_accepted_total", 0), 4);
  EXPECT_EQ(value("deepinfer_drafts_made_total", 0), 9);
  EXPECT_EQ(value("deepinfer_draft_gain", 0), 1.25);
  EXPECT_EQ(value("deepinfer_draft_calibration_error", 0), 0.04);
  engine.stats.drafts_verified.clear();
  engine.stats.drafts_accepted.clear();
  EXPECT_EQ(EngineMetrics(engine).Collect().size(), families.size() - 6);  // no draft, no numbers of drafts
}

}  // namespace
}  // namespace deepinfer::server
