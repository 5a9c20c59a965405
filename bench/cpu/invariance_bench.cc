// SPDX-License-Identifier: Apache-2.0
// What equal bits for every number of rows cost: products of this backend, whose sums have one order whatever the batch,
// against oneDNN, which chooses kernels and orders by shape.
//   invariance_bench [ROUNDS]
// One thread each. oneDNN gets its weights packed in advance, in fp32 (the same arithmetic) and in bf16 with bf16 inputs (half
// the bits of ours); this backend reads the checkpoint's FP8 or FP4 codes and multiplies in fp32. Products are timed in turn,
// ours and theirs; figures are medians. Weights of a shape are used again and again, so the small ones are in the cache.
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <dnnl.hpp>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "backend/cpu/cpu_backend.h"

namespace {

using namespace deepinfer::backend;
using Clock = std::chrono::steady_clock;
using dnnl::memory;

struct Shape {
  const char* name;
  WeightFormat format;
  int64_t outputs, inputs;
};
constexpr Shape kShapes[] = {
    {"tiny expert w1", WeightFormat::kFp4Row32, 96, 256},        {"tiny wq_b", WeightFormat::kFp8Tile32, 512, 128},
    {"tiny head", WeightFormat::kBf16, 8192, 256},               {"expert w1", WeightFormat::kFp4Row32, 2304, 5120},
    {"expert w2", WeightFormat::kFp4Row32, 5120, 2304},          {"wkv", WeightFormat::kFp8Tile32, 512, 5120},
    {"wq_a", WeightFormat::kFp8Tile32, 1280, 5120},              {"wo_b", WeightFormat::kFp8Tile32, 5120, 8192}};

double Seconds(const std::function<void()>& run) {
  const auto begin = Clock::now();
  run();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// A product of oneDNN with weights in the layout that it likes best.
class Peer {
 public:
  Peer(const dnnl::engine& engine, dnnl::stream stream, const Shape& shape, int64_t rows, memory::data_type type)
      : stream_(std::move(stream)) {
    const memory::desc x({rows, shape.inputs}, type, memory::format_tag::ab);
    const memory::desc w({shape.inputs, shape.outputs}, type, memory::format_tag::any);
    const memory::desc y({rows, shape.outputs}, memory::data_type::f32, memory::format_tag::ab);
    const dnnl::matmul::primitive_desc description(dnnl::matmul::desc(x, w, y), engine);
    product_ = dnnl::matmul(description);
    memory plain({{shape.inputs, shape.outputs}, memory::data_type::f32, memory::format_tag::ba}, engine);
    auto* values = static_cast<float*>(plain.get_data_handle());
    std::fill_n(values, shape.inputs * shape.outputs, 0.01F);
    memory weights(description.weights_desc(), engine);
    dnnl::reorder(plain, weights).execute(stream_, plain, weights);
    memory source(x, engine);
    const int64_t halves = rows * shape.inputs * (type == memory::data_type::f32 ? 2 : 1);
    std::fill_n(static_cast<uint16_t*>(source.get_data_handle()), halves, uint16_t{0x3C00});
    args_ = {{DNNL_ARG_SRC, source}, {DNNL_ARG_WEIGHTS, weights}, {DNNL_ARG_DST, memory(y, engine)}};
    stream_.wait();
  }
  void Run() {
    product_.execute(stream_, args_);
    stream_.wait();
  }

 private:
  dnnl::stream stream_;
  dnnl::matmul product_;
  std::unordered_map<int, memory> args_;
};

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 15;
  omp_set_num_threads(1);
  const auto backend = *CreateCpu({.num_threads = 1});
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  const dnnl::stream stream(engine);
  std::printf("%s against oneDNN %d.%d, one thread, medians of %d rounds, us\n", std::string(backend->kernel_variant()).c_str(),
              dnnl_version()->major, dnnl_version()->minor, rounds);
  std::printf("%-16s %12s %5s %10s %10s %10s %12s %12s\n", "weights", "shape", "rows", "ours", "fp32", "bf16", "ours/fp32", "ours/bf16");
  std::mt19937 random(1);
  for (const Shape& shape : kShapes) {
    // Codes of small numbers, whatever the format.
    std::vector<uint8_t> codes(static_cast<size_t>(shape.outputs * shape.inputs * 2)), scales(codes.size() / 32 + 64, 127);
    for (uint8_t& code : codes) code = static_cast<uint8_t>(0x20 + random() % 16);
    const Matrix w{.format = shape.format, .rows = shape.outputs, .cols = shape.inputs, .data = codes.data(), .scale = scales.data()};
    for (const int64_t rows : {1, 4, 16, 64, 256}) {
      std::vector<float> x(static_cast<size_t>(rows * shape.inputs), 0.01F), y(static_cast<size_t>(rows * shape.outputs));
      Peer fp32(engine, stream, shape, rows, memory::data_type::f32), bf16(engine, stream, shape, rows, memory::data_type::bf16);
      const int64_t work = rows * shape.outputs * shape.inputs;
      const int repeats = static_cast<int>(std::clamp<int64_t>((20 << 20) / work, 1, 200));
      const auto repeated = [&](const std::function<void()>& run) {
        return Seconds([&] { for (int i = 0; i < repeats; ++i) run(); }) / repeats * 1e6;
      };
      const std::function<void()> runs[] = {
          [&] {
            backend->Linear({.rows = rows, .w = w, .x = x.data(), .x_stride = shape.inputs, .y = y.data(), .y_stride = shape.outputs});
          },
          [&] { fp32.Run(); }, [&] { bf16.Run(); }};
      std::vector<double> times[3];
      for (int round = -1; round < rounds; ++round) {
        for (int i = 0; i < 3; ++i) {
          const double us = repeated(runs[i]);
          if (round >= 0) times[i].push_back(us);
        }
      }
      const double ours = Median(times[0]), theirs = Median(times[1]), half = Median(times[2]);
      std::printf("%-16s %5lldx%-6lld %5lld %10.1f %10.1f %10.1f %11.2f %11.2f\n", shape.name, static_cast<long long>(shape.outputs),
                  static_cast<long long>(shape.inputs), static_cast<long long>(rows), ours, theirs, half, ours / theirs, ours / half);
      std::fflush(stdout);
    }
  }
  return 0;
}
