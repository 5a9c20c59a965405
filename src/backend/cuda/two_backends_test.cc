// SPDX-License-Identifier: Apache-2.0
// Property: two backends of one process, each with a thread, run kernels at the same time whose blocks wait for each other (mixes of many
// rows), or share rows in clusters (attention of few rows), to their end and with the bits that each gives alone.
#include <cuda_runtime_api.h>

#include <chrono>
#include <cstdio>
#include <future>

#include "backend/cuda/twin_test_util.h"

namespace deepinfer::backend::cuda {
namespace {

constexpr int64_t kStreams = 4, kMixes = (2 + kStreams) * kStreams, kHidden = 2560, kFlat = kStreams * kHidden, kMixRows = 1040;
constexpr int64_t kHeads = 64, kDim = 512, kRope = 64, kPages = 3;
const int kTurns = kSmall ? 2 : 8;
constexpr int64_t kAttentionRows[] = {5, 40, 150};  // shared by four blocks, by two, not at all

struct Inputs {
  std::vector<float> x, collapse, base, scale, norm_weight, q, table, sink;
  HostMatrix fn;
  std::vector<uint8_t> window;
};

// A backend with outputs for kTurns turns of its ops.
class Worker {
 public:
  Worker(Backend& backend, const Inputs& in) : side_(backend) {
    mix_ = {.rows = kMixRows, .streams = kStreams, .hidden = kHidden, .x = side_.Put(in.x), .fn = side_.Bind(in.fn.matrix),
            .base = side_.Put(in.base), .scale = side_.Put(in.scale), .norm_eps = 1e-20f, .hc_eps = 1e-6f, .sinkhorn_iters = 5,
            .collapse = side_.Put(in.collapse), .norm_weight = side_.Put(in.norm_weight), .pre = nullptr, .post = nullptr,
            .comb = nullptr, .collapsed = nullptr};
    const int64_t rows = kAttentionRows[2];
    attention_ = {.rows = rows, .heads = kHeads, .dim = kDim, .rope_dim = kRope, .q = side_.Put(in.q), .table = side_.Put(in.table),
                  .positions = side_.Put(std::vector<int32_t>(static_cast<size_t>(rows), 300)),
                  .requests = side_.Put(std::vector<int32_t>(static_cast<size_t>(rows), 0)), .window = 128,
                  .window_floor = side_.Put(std::vector<int32_t>(static_cast<size_t>(rows), 0)),
                  .window_cache = {.base = reinterpret_cast<std::byte*>(side_.Put(in.window)),
                                   .pages = side_.Put(std::vector<int32_t>{2, 0, 1}), .first_page = side_.Put(std::vector<int32_t>{0}),
                                   .pages_stride = kPages, .dim = kDim},
                  .sink = side_.Put(in.sink), .scale = 0.04f, .activations = Activations::kBf16, .out = nullptr};
    count_ = kMixRows * (kHidden + kMixes);
    for (const int64_t n : kAttentionRows) count_ += n * kHeads * kDim;
    results_ = side_.Out<float>(kTurns * count_);
  }

  // Nothing is waited for until all turns are queued.
  std::vector<float> Run() {
    EXPECT_EQ(cudaMemset(results_, 0xFF, static_cast<size_t>(kTurns * count_) * sizeof(float)), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
    for (int turn = 0; turn < kTurns; ++turn) {
      float* to = results_ + turn * count_;
      const auto take = [&to](int64_t n) { return std::exchange(to, to + n); };
      mix_.collapsed = take(kMixRows * kHidden);
      mix_.comb = take(kMixRows * kStreams * kStreams);
      mix_.pre = take(kMixRows * kStreams);
      mix_.post = take(kMixRows * kStreams);
      side_->HcMix(mix_);
      for (const int64_t rows : kAttentionRows) {
        attention_.rows = rows;
        attention_.out = take(rows * kHeads * kDim);
        side_->Attention(attention_);
      }
    }
    return side_.Get(results_, kTurns * count_);
  }
  int64_t count() const { return count_; }

 private:
  Side side_;
  HcMixParams mix_{};
  AttentionParams attention_{};
  int64_t count_ = 0;
  float* results_ = nullptr;
};

class TwoBackends : public TwinTest {
 protected:
  Inputs Draw() {
    const int64_t rows = kAttentionRows[2];
    const WindowCache window{.dim = kDim};
    Inputs in{.x = Normal(kMixRows * kFlat), .collapse = Normal(kMixRows * kStreams), .base = Normal(kMixes), .scale = Normal(3),
              .norm_weight = Normal(kHidden), .q = Normal(rows * kHeads * kDim, 4.0f), .table = Normal(rows * kRope),
              .sink = Normal(kHeads), .fn = Weights(WeightFormat::kF32, kMixes, kFlat),
              .window = std::vector<uint8_t>(static_cast<size_t>(kPages * window.page_bytes()))};
    for (size_t i = 0; i < in.window.size(); ++i) {
      const bool is_scale = static_cast<int64_t>(i) % window.page_bytes() >= kBlockTokens * kDim;
      in.window[i] = static_cast<uint8_t>(is_scale ? Uniform(117, 120) : Uniform(0, 0x7E) | Uniform(0, 1) << 7);
    }
    return in;
  }
};

TEST_F(TwoBackends, GiveTheirBitsSideBySide) {
  auto made = CreateCuda({});
  ASSERT_TRUE(made.ok()) << made.status().message();
  const std::unique_ptr<Backend> other = *std::move(made);
  Worker workers[2] = {{*card(), Draw()}, {*other, Draw()}};
  std::vector<float> alone[2];
  for (int i = 0; i < 2; ++i) {
    alone[i] = workers[i].Run();
    const float* first = alone[i].data();
    for (int turn = 0; turn < kTurns; ++turn) {
      ASSERT_EQ(std::memcmp(first + turn * workers[i].count(), first, static_cast<size_t>(workers[i].count()) * sizeof(float)), 0);
    }
  }
  ASSERT_NE(alone[0], alone[1]);
  const int rounds = kSmall ? 2 : 10;
  const auto work = [&](int i) {
    int different = 0;
    for (int round = 0; round < rounds; ++round) {
      const auto got = workers[i].Run();
      different += std::memcmp(got.data(), alone[i].data(), got.size() * sizeof(float)) != 0;
    }
    return different;
  };
  std::future<int> both[2];
  for (int i = 0; i < 2; ++i) both[i] = std::async(std::launch::async, work, i);
  for (auto& one : both) {
    if (one.wait_for(std::chrono::seconds(120)) != std::future_status::ready) {
      std::fprintf(stderr, "kernels of two backends wait for each other\n");
      std::_Exit(1);
    }
    EXPECT_EQ(one.get(), 0) << "of " << rounds << " rounds differ";
  }
}

}  // namespace
}  // namespace deepinfer::backend::cuda
