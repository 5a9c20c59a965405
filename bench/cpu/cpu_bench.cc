// SPDX-License-Identifier: Apache-2.0
// Speed of the CPU backend's products against what this machine's memory and multipliers can do, in the same run:
//   cpu_bench [VARIANT]
// - FP4 and FP8 matrix-vector products at the published shapes, walking through at least eight times the last-level
//   cache, as GB/s of weights and as a share of the better of reading-and-summing and copying (read + written bytes);
// - one synthetic layer at the published dimensions: a decode step on one thread and on all, and prefill in GFLOP/s;
// - the same products from the second-level cache, where only the decoding of weights counts.
// Figures are medians over the matrices or layers of a walk; on one thread, of the time that it ran.
// The buffer takes eight times the last-level cache.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "backend/cpu/cpu_backend.h"
#include "layer.h"
#include "yardstick.h"

namespace {

using namespace deepinfer;
using namespace deepinfer::bench;
using backend::Matrix;
using backend::WeightFormat;

struct Shape {
  const char* name;
  WeightFormat format;
  int64_t rows, cols;
};
constexpr Shape kShapes[] = {{"FP4 expert w1, w3 2304 x 5120", WeightFormat::kFp4Row32, 2304, 5120},
                             {"FP4 expert w2     5120 x 2304", WeightFormat::kFp4Row32, 5120, 2304},
                             {"FP8 wq_b         32768 x 1280", WeightFormat::kFp8Tile32, 32768, 1280}};

std::unique_ptr<backend::Backend> Make(const std::string& variant, int threads) {
  auto made = backend::CreateCpu({.num_threads = threads, .variant = variant});
  if (!made.ok()) {
    std::fprintf(stderr, "%s\n", made.status().message().c_str());
    std::exit(1);
  }
  return std::move(*made);
}

void Multiply(backend::Backend& backend, const Matrix& w, std::vector<float>& x, std::vector<float>& y) {
  backend.Linear({.rows = 1, .w = w, .x = x.data(), .x_stride = w.cols, .y = y.data(), .y_stride = w.rows});
}

// Every matrix of the shape that fits the pool, once each.
double WalkMatrices(Time time, backend::Backend& backend, WeightPool& pool, const Shape& shape) {
  pool.Restart();
  std::vector<Matrix> all;
  const size_t bytes = MatrixBytes({.format = shape.format, .rows = shape.rows, .cols = shape.cols});
  while (pool.Fits(bytes)) all.push_back(pool.Cut(shape.format, shape.rows, shape.cols));
  std::vector<float> x(static_cast<size_t>(shape.cols), 0.5f), y(static_cast<size_t>(shape.rows));
  return MedianRate(time, all.size(), static_cast<double>(bytes), [&](size_t i) { Multiply(backend, all[i], x, y); });
}

// The same rows again and again, 512 KiB of them.
double Cached(Time time, backend::Backend& backend, WeightPool& pool, const Shape& shape) {
  pool.Restart();
  Matrix w = {.format = shape.format, .rows = 32, .cols = shape.cols};
  w = pool.Cut(shape.format, static_cast<int64_t>((512u << 10) / backend::MatrixRowBytes(w)) / 32 * 32, shape.cols);
  std::vector<float> x(static_cast<size_t>(shape.cols), 0.5f), y(static_cast<size_t>(w.rows));
  return MedianRate(time, 2000, static_cast<double>(MatrixBytes(w)), [&](size_t) { Multiply(backend, w, x, y); });
}

void Layers(Time time, backend::Backend& backend, WeightPool& pool, double bandwidth) {
  pool.Restart();
  std::vector<Layer> layers;
  while (pool.Fits(LayerBytes())) layers.push_back(pool.CutLayer());
  LayerWalk step(1);
  const auto bytes = static_cast<double>(LayerBytes());
  const double rate = MedianRate(time, layers.size(), bytes, [&](size_t i) { step.Run(backend, layers[i]); });
  std::printf("layer, decode step: %6.2f GB/s of weights, %3.0f %% of the yardstick, %.2f ms a layer\n", rate / 1e9,
              100 * rate / bandwidth, 1e3 * bytes / rate);
  for (const int64_t rows : {16, 128}) {
    LayerWalk prefill(rows);
    const double once = MedianRate(time, 3, 1, [&](size_t i) { prefill.Run(backend, layers[i % layers.size()]); });
    std::printf("layer, prefill of %3d rows: %6.1f GFLOP/s, %.0f tokens/s a layer\n", static_cast<int>(rows),
                2 * prefill.macs() * once / 1e9, static_cast<double>(rows) * once);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string variant = argc > 1 ? argv[1] : "";
  const size_t cache = LastLevelCacheBytes();
  WeightPool pool(std::max(8 * cache + (64u << 20), 2 * LayerBytes()));
  const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  std::printf("last-level cache %zu MiB, weights %zu MiB, %d cores, variant %s\n", cache >> 20, pool.codes().size() >> 20, cores,
              std::string(Make(variant, 1)->kernel_variant()).c_str());
  for (const int threads : {1, cores}) {
    ThreadPool threads_of_yardstick(threads);
    const Bandwidth bandwidth = MeasureBandwidth(pool.codes(), threads_of_yardstick);
    std::printf("\n%d thread(s): read and sum %.2f GB/s, copy %.2f GB/s\n", threads, bandwidth.read / 1e9, bandwidth.copy / 1e9);
    const auto backend = Make(variant, threads);
    const Time time = threads == 1 ? Time::kThread : Time::kWall;
    for (const Shape& shape : kShapes) {
      const double rate = WalkMatrices(time, *backend, pool, shape);
      std::printf("%s: %6.2f GB/s of weights, %3.0f %% of the yardstick; from cache %6.2f GB/s\n", shape.name, rate / 1e9,
                  100 * rate / bandwidth.best(), Cached(time, *backend, pool, shape) / 1e9);
    }
    Layers(time, *backend, pool, bandwidth.best());
    if (cores == 1) break;
  }
}
