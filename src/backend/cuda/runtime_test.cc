// SPDX-License-Identifier: Apache-2.0
// Properties of the backend around its ops: what is queued without waiting (copies, ops, branches, recordings) runs as if one after
// the other; a failure is reported once, by name, and spoils nothing that comes after it.
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>

#include <atomic>
#include <numeric>
#include <thread>

#include "backend/cuda/twin_test_util.h"

namespace deepinfer::backend::cuda {
namespace {

using ::testing::HasSubstr;

class Runtime : public TwinTest {
 protected:
  // A shared expert alone, on rows of its own.
  struct Expert {
    HostMatrix w1, w3, w2;
    std::vector<float> x;
    ExpertsParams params;
  };
  static constexpr int64_t kRows = 3, kHidden = 64, kInter = 32;

  Expert MakeExpert() {
    constexpr WeightFormat kFormat = WeightFormat::kFp8Tile32;
    return {.w1 = Weights(kFormat, kInter, kHidden), .w3 = Weights(kFormat, kInter, kHidden), .w2 = Weights(kFormat, kHidden, kInter),
            .x = Normal(kRows * kHidden), .params = {}};
  }
  static void Bind(Side& side, Expert* e) {
    e->params = {.rows = kRows, .hidden = kHidden, .topk = 0, .x = side.Put(e->x),
                 .shared = {side.Bind(e->w1.matrix), side.Bind(e->w3.matrix), side.Bind(e->w2.matrix)}, .has_shared = true,
                 .limit = 1.5f, .activations = Activations::kBf16, .y = side.Out<float>(kRows * kHidden)};
  }
  static std::vector<float> Get(Side& side, const Expert& e) { return side.Get(e.params.y, kRows * kHidden); }
};

// Keeps the device's copies from the host busy: a copy that others queue arrives late.
class BusyCopies {
 public:
  BusyCopies() : thread_([this] { Run(); }) {}
  ~BusyCopies() {
    stop_ = true;
    thread_.join();
  }

 private:
  void Run() {
    constexpr size_t kBytes = size_t{64} << 20;
    void *host = nullptr, *device = nullptr;
    cudaStream_t stream = nullptr;
    ASSERT_EQ(cudaHostAlloc(&host, kBytes, cudaHostAllocDefault), cudaSuccess);
    ASSERT_EQ(cudaMalloc(&device, kBytes), cudaSuccess);
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    while (!stop_) {
      for (int i = 0; i < 8; ++i) cudaMemcpyAsync(device, host, kBytes, cudaMemcpyHostToDevice, stream);
      EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    }
    cudaStreamDestroy(stream);
    cudaFree(device);
    cudaFreeHost(host);
  }
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

// The first run of an expert makes its table of addresses; in a branch nothing waits for copies of the stream.
TEST_F(Runtime, TablesOfWeightsAreThereForTheirFirstReaderInABranch) {
  Side side(*card());
  std::vector<Expert> experts(60);
  for (Expert& e : experts) {
    e = MakeExpert();
    Bind(side, &e);
  }
  ASSERT_TRUE(card()->Synchronize().ok());
  {
    const BusyCopies busy;
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    for (const Expert& e : experts) {
      side->BeginBranch();
      side->Experts(e.params);
      side->EndBranch();
      side->JoinBranch();
    }
    const Status status = card()->Synchronize();
    ASSERT_TRUE(status.ok()) << status.message();
  }
  for (size_t i = 0; i < experts.size(); ++i) {
    const std::vector<float> first = Get(side, experts[i]);
    side->Experts(experts[i].params);
    ASSERT_EQ(first, Get(side, experts[i])) << i;
  }
}

// Steps that nobody waits for: each uploads its table and much else, replays a recording with a branch that reads the table twice,
// and leaves its result. A table that came too soon or too late, or a result that was overwritten, shows.
TEST_F(Runtime, StepsThatNobodyWaitsForSeeTheirOwnTables) {
  constexpr int kWidth = 96, kSourceRows = 500, kStepRows = 40, kSteps = 400;
  Side side(*card());
  const std::vector<float> source = Normal(kSourceRows * kWidth);
  std::vector<int32_t> all(kStepRows);
  std::iota(all.begin(), all.end(), 0);
  const float* from = side.Put(source);
  auto* table = side.Out<int32_t>(kStepRows);
  const int32_t* in_order = side.Put(all);
  float *a = side.Out<float>(kStepRows * kWidth), *b = side.Out<float>(kStepRows * kWidth);
  float* results = side.Out<float>(int64_t{kSteps} * kStepRows * kWidth);
  constexpr int64_t kRowBytes = kWidth * sizeof(float);
  const auto step = [&] {
    side->BeginBranch();
    side->GatherRows({.rows = kStepRows, .row_bytes = kRowBytes, .src = from, .index = table, .dst = b});
    side->EndBranch();
    side->GatherRows({.rows = kStepRows, .row_bytes = kRowBytes, .src = from, .index = table, .dst = a});
    side->JoinBranch();
    side->Add({.rows = kStepRows, .dim = kWidth, .x = a, .x_stride = kWidth, .y = b, .y_stride = kWidth});
  };
  card()->CopyToDevice(table, all.data(), all.size() * 4);
  step();
  ASSERT_TRUE(card()->Synchronize().ok());
  card()->BeginRecording();
  step();
  auto recording = card()->EndRecording();
  ASSERT_TRUE(recording.ok()) << recording.status().message();
  const std::vector<std::byte> more(300'000);
  auto* elsewhere = side.Out<std::byte>(static_cast<int64_t>(more.size()));
  std::vector<std::vector<int32_t>> tables;
  for (int s = 0; s < kSteps; ++s) {
    tables.push_back(Integers(kStepRows, 0, kSourceRows - 1));
    card()->CopyToDevice(table, tables.back().data(), kStepRows * 4);
    if (s % 3 != 0) card()->CopyToDevice(elsewhere, more.data(), more.size());
    s % 5 == 4 ? step() : (*recording)->Replay();
    side->GatherRows({.rows = kStepRows, .row_bytes = kRowBytes, .src = b, .index = in_order,
                      .dst = results + int64_t{s} * kStepRows * kWidth});
  }
  const std::vector<float> got = side.Get(results, int64_t{kSteps} * kStepRows * kWidth);
  for (size_t i = 0; i < got.size(); ++i) {
    const int32_t row = tables[i / (kStepRows * kWidth)][i / kWidth % kStepRows];
    const float value = source[static_cast<size_t>(row) * kWidth + i % kWidth];
    ASSERT_EQ(got[i], value + value) << "step " << i / (kStepRows * kWidth) << " row " << i / kWidth % kStepRows;
  }
}

TEST_F(Runtime, ARecordingThatFailsLeavesItsOpsAsTheyWere) {
  Side side(*card()), plain(*reference());
  Expert e = MakeExpert(), twin = e;
  Bind(side, &e);
  Bind(plain, &twin);
  plain->Experts(twin.params);
  // Its table of addresses would have to be made.
  card()->BeginRecording();
  side->Experts(e.params);
  const auto failed = card()->EndRecording();
  ASSERT_FALSE(failed.ok());
  EXPECT_THAT(failed.status().message(), HasSubstr("a new table of weights"));
  EXPECT_TRUE(card()->Synchronize().ok());

  side->Experts(e.params);
  ExpectRowsNear(Get(side, e), Get(plain, twin), kHidden, 2e-2);
  const std::vector<float> expected = Get(side, e);
  card()->BeginRecording();
  side->Experts(e.params);
  const auto recording = card()->EndRecording();
  ASSERT_TRUE(recording.ok()) << recording.status().message();
  const std::vector<float> poison(expected.size(), -7.0f);
  card()->CopyToDevice(e.params.y, poison.data(), poison.size() * sizeof(float));
  (*recording)->Replay();
  EXPECT_EQ(Get(side, e), expected);
}

TEST_F(Runtime, AnErrorBeforeARecordingIsReportedBehindIt) {
  Side side(*card());
  auto* x = side.Out<float>(64);
  const auto op = [&] { side->Add({.rows = 1, .dim = 64, .x = x, .x_stride = 64, .y = x, .y_stride = 64}); };
  op();
  ASSERT_TRUE(card()->Synchronize().ok());
  const int value = 0;
  card()->CopyToDevice(nullptr, &value, sizeof(value));
  card()->BeginRecording();
  op();
  EXPECT_TRUE(card()->EndRecording().ok());
  const Status status = card()->Synchronize();
  EXPECT_EQ(status.code(), Code::kInternal);
  EXPECT_THAT(status.message(), HasSubstr("copying to the device"));
  op();
  EXPECT_TRUE(card()->Synchronize().ok());
}

TEST_F(Runtime, WantOfMemoryIsAnErrorThatSaysSoAndPasses) {
  const auto buffer = card()->Allocate(size_t{1} << 50);
  ASSERT_FALSE(buffer.ok());
  EXPECT_EQ(buffer.status().code(), Code::kResourceExhausted);
  EXPECT_THAT(buffer.status().message(), HasSubstr("1125899906842624 bytes"));
  // Scratch memory of an op: the packed inputs of 2^36 rows.
  Side side(*card());
  const HostMatrix w = Weights(WeightFormat::kBf16, 64, 64);
  const Matrix bound = side.Bind(w.matrix);
  auto* x = side.Out<float>(64);
  side->Linear({.rows = int64_t{1} << 36, .w = bound, .activations = Activations::kBf16, .x = x, .x_stride = 64, .y = x, .y_stride = 64});
  const Status status = card()->Synchronize();
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("scratch memory"));
  side->Linear({.rows = 1, .w = bound, .activations = Activations::kBf16, .x = side.Put(std::vector<float>(64, 1.0f)), .x_stride = 64,
                .y = x, .y_stride = 64});
  side.Get(x, 64);
}

TEST_F(Runtime, RefusesADeviceThatIsNotThere) {
  const auto made = CreateCuda({.device = 99});
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.status().code(), Code::kUnavailable);
  EXPECT_THAT(made.status().message(), HasSubstr("there is no device 99"));
}

// An illegal access ends every CUDA context of a process; so it has a process of its own.
TEST_F(Runtime, ADeviceErrorIsReportedFromThenOn) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto read_outside = [&] {
    Side side(*card());
    const int32_t far = 0x7FFFFFFF;
    const int32_t* index = side.Put(std::vector<int32_t>{far});
    auto* row = side.Out<float>(1 << 16);
    side->GatherRows({.rows = 1, .row_bytes = 4 << 16, .src = row, .index = index, .dst = row});
    const Status first = card()->Synchronize(), second = card()->Synchronize();
    std::fprintf(stderr, "first: %s\nsecond: %s\n", std::string(first.message()).c_str(), std::string(second.message()).c_str());
    std::_Exit(first.code() == Code::kInternal && second.code() == Code::kInternal ? 3 : 4);
  };
  EXPECT_EXIT(read_outside(), ::testing::ExitedWithCode(3), "first: CUDA device 0: .*illegal memory access");
}

}  // namespace
}  // namespace deepinfer::backend::cuda
