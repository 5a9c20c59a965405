// SPDX-License-Identifier: Apache-2.0
#include "harness.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "core/status.h"
#include "graph_time.h"
#include "numeric/formats.h"

namespace deepinfer::bench {
namespace {

constexpr int kWarmups = 3, kReplays = 15;

void Must(const Status& status) {
  if (status.ok()) return;
  fmt::print(stderr, "{}\n", status.message());
  std::exit(1);
}

}  // namespace

Card::Card() { Must(context_.Init()); }

Card::~Card() {
  for (void* data : owned_) cudaFree(data);
}

void Card::Check() {
  Must(cudaStreamSynchronize(context_.stream()), "running");
  Must(context_.TakeError());
}

void* Card::PutBytes(const void* host, size_t size_bytes) {
  void* data = nullptr;
  Must(cudaMalloc(&data, std::max<size_t>(size_bytes, 1)), "allocating");
  owned_.push_back(data);
  if (host != nullptr) Must(cudaMemcpy(data, host, size_bytes, cudaMemcpyHostToDevice), "copying");
  return data;
}

std::vector<float> Card::Normal(int64_t n) {
  std::normal_distribution<float> draw(0.0f, 1.0f);
  std::vector<float> values(static_cast<size_t>(n));
  // Drawing is slow: long arrays repeat a prime-length run.
  const size_t drawn = std::min<size_t>(values.size(), 1000003);
  for (size_t i = 0; i < drawn; ++i) values[i] = draw(random_);
  for (size_t i = drawn; i < values.size(); ++i) values[i] = values[i - drawn];
  return values;
}

backend::Matrix Card::Weights(backend::WeightFormat format, int64_t rows, int64_t cols, backend::Activations activations) {
  backend::Matrix host{.format = format, .rows = rows, .cols = cols};
  const size_t bytes = static_cast<size_t>(rows) * MatrixRowBytes(host);
  std::vector<uint16_t> bf16;
  std::vector<float> fp32;
  std::vector<uint8_t> scale;
  if (format == backend::WeightFormat::kBf16 || format == backend::WeightFormat::kF32) {
    fp32 = Normal(rows * cols);
    for (float& value : fp32) value /= std::sqrt(static_cast<float>(cols));
    for (const float value : fp32) bf16.push_back(numeric::FloatToBf16(value));
    host.data = format == backend::WeightFormat::kF32 ? static_cast<const void*>(fp32.data()) : bf16.data();
  } else {
    while (codes_.size() < bytes) {
      const auto code = static_cast<uint8_t>(random_());
      codes_.push_back((code & 0x7F) == 0x7F ? code ^ 1 : code);
    }
    scale.assign(static_cast<size_t>(rows * cols / 32), format == backend::WeightFormat::kFp4Row32 ? 120 : 113);
    host.data = codes_.data();
    host.scale = scale.data();
  }
  auto bound = weights_.Bind(host, activations);
  Must(bound.status());
  return *bound;
}

double Card::Seconds(int calls, const std::function<void(int)>& op) {
  // The scratch memory finds its size before the capture, which may not allocate.
  for (int i = 0; i < kWarmups; ++i) {
    context_.BeginOp();
    op(i);
  }
  Check();
  context_.BeginCapture();
  for (int i = 0; i < calls; ++i) {
    context_.BeginOp();
    op(i);
  }
  cudaGraphExec_t exec = nullptr;
  Must(context_.EndCapture(&exec));
  const double seconds = MedianSeconds(exec, context_.stream(), kWarmups, kReplays);
  Must(cudaGraphExecDestroy(exec), "graph");
  Check();
  return seconds / calls;
}

void Report(const std::string& op, const std::string& shape, double value, const std::string& unit, const std::string& note) {
  // Two spaces at least: bench/cuda/figures.py reads these lines.
  fmt::print("{:<22}  {:<44}  {:>10.1f} {:<8} {}\n", op, shape, value, unit, note);
  std::fflush(stdout);
}

}  // namespace deepinfer::bench
