// SPDX-License-Identifier: Apache-2.0
// Property: a step that the device fails (want of memory in the middle of traffic) ends the requests of that step with an error
// that says so, and nobody else; all cache comes back and those that follow get the tokens that they always get. An engine that wants
// more memory than there is does not start.
//   engine_faults_test [BACKEND]
#include <gtest/gtest.h>

#include <vector>

#include "tests/engine/small_engine.h"
#include "tests/model/recording_backend.h"

namespace deepinfer::engine {
namespace {

class FailingBackend final : public golden::RecordingBackend {
 public:
  using RecordingBackend::RecordingBackend;
  bool can_record() const override { return false; }
  Status Synchronize() override {
    DI_RETURN_IF_ERROR(RecordingBackend::Synchronize());
    if (failures == 0) return Status();
    --failures;
    return Error(Code::kResourceExhausted, "the device is out of memory");
  }
  int failures = 0;  // of the next calls
};

struct Answer {
  std::vector<int32_t> tokens;
  bool ended = false;
  deepinfer::FinishReason reason{};
  std::string error;
};

class Faults : public ::testing::Test {
 protected:
  void SetUp() override {
    EngineOptions options = SmallOptions();
    options.requests_running_max = 4;
    options.step_rows_max = 64;
    auto made = CreateBackend({.name = test_backend, .num_threads = 2});
    ASSERT_TRUE(made.ok()) << made.status().message();
    auto failing = std::make_unique<FailingBackend>(*std::move(made));
    backend_ = failing.get();
    auto loaded = LoadedModel::Load(options.model_directory, std::move(failing));
    ASSERT_TRUE(loaded.ok()) << loaded.status().message();
    auto engine = BatchEngine::Create(options, *std::move(loaded));
    ASSERT_TRUE(engine.ok()) << engine.status().message();
    engine_ = *std::move(engine);
  }
  void Submit(int index, Answer* answer) {
    GenerationRequest request{.prompt = {0}, .max_tokens = 24, .ignore_eos = true, .temperature = 1, .seed = 7};
    for (int i = 0; i < 90 + 40 * (index % 3); ++i) request.prompt.push_back(300 + (index * 31 + i * 7) % 4000);
    std::string why;
    const GenerationId id = engine_->Submit(request, [answer](const Output& output) {
      EXPECT_FALSE(answer->ended);
      if (output.token >= 0) answer->tokens.push_back(output.token);
      if (output.finished) *answer = {answer->tokens, true, output.reason, output.error};
    }, &why);
    ASSERT_NE(id, 0u) << why;
  }
  void Drain() {
    while (engine_->Step()) ASSERT_EQ(engine_->FindViolation(), "");
  }

  FailingBackend* backend_ = nullptr;
  std::unique_ptr<BatchEngine> engine_;
};

// Case E13.
TEST_F(Faults, E13_AStepOutOfMemoryEndsItsOwnRequestsOnly) {
  constexpr int kRequests = 6;  // two of them wait while the first four run
  std::vector<Answer> alone(kRequests);
  for (int i = 0; i < kRequests; ++i) {
    Submit(i, &alone[static_cast<size_t>(i)]);
    Drain();
    ASSERT_EQ(alone[static_cast<size_t>(i)].tokens.size(), 24u);
  }
  int failed_in_all = 0;
  for (int step = 0; step < 36; step += 3) {
    std::vector<Answer> answers(kRequests);
    for (int i = 0; i < kRequests; ++i) Submit(i, &answers[static_cast<size_t>(i)]);
    for (int s = 0; s < step; ++s) engine_->Step();
    backend_->failures = 1;
    engine_->Step();
    backend_->failures = 0;
    Drain();
    for (int i = 0; i < kRequests; ++i) {
      const Answer& answer = answers[static_cast<size_t>(i)];
      const std::vector<int32_t>& whole = alone[static_cast<size_t>(i)].tokens;
      ASSERT_TRUE(answer.ended);
      if (answer.reason == deepinfer::FinishReason::kError) {
        ++failed_in_all;
        EXPECT_NE(answer.error.find("out of memory"), std::string::npos) << answer.error;
        ASSERT_LE(answer.tokens.size(), whole.size());
        EXPECT_TRUE(std::equal(answer.tokens.begin(), answer.tokens.end(), whole.begin()));
      } else {
        EXPECT_EQ(answer.tokens, whole) << "request " << i << ", a failure in step " << step;
      }
    }
    EXPECT_EQ(engine_->Stats().blocks_available, engine_->Stats().blocks);
  }
  EXPECT_GT(failed_in_all, 6);
  EXPECT_LT(failed_in_all, 12 * kRequests - 6);
}

// Host memory is not given out before it is touched, so only a device can say at start that there is not enough.
TEST(Start, WantOfMemoryOnADeviceIsAnError) {
  if (test_backend != "cuda") GTEST_SKIP() << "no device";
  EngineOptions options = SmallOptions();
  options.kv_memory_bytes = int64_t{1} << 46;
  const auto engine = BatchEngine::Create(options);
  ASSERT_FALSE(engine.ok());
  EXPECT_EQ(engine.status().code(), Code::kResourceExhausted);
  EXPECT_NE(engine.status().message().find("no memory for a buffer of "), std::string::npos) << engine.status().message();
  EXPECT_TRUE(BatchEngine::Create(SmallOptions()).ok());
}

}  // namespace
}  // namespace deepinfer::engine

int main(int argc, char** argv) { return deepinfer::engine::RunTestsOn(argc, argv); }
