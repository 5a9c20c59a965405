// SPDX-License-Identifier: Apache-2.0
#include "layer.h"

#include <cstring>
#include <random>

#include "core/check.h"

namespace deepinfer::bench {
namespace {

using backend::Matrix;
using backend::WeightFormat;

std::vector<float> Normals(int64_t n) {
  static std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<float> out(static_cast<size_t>(n));
  for (float& x : out) x = normal(random);
  return out;
}

}  // namespace

size_t MatrixBytes(const Matrix& m) {
  const auto rows = static_cast<size_t>(m.rows), cols = static_cast<size_t>(m.cols);
  return rows * backend::MatrixRowBytes(m) + (m.format == WeightFormat::kFp8Tile32 ? rows / 32 : rows) * (cols / 32);
}

size_t LayerBytes() {
  const int64_t fp8 = kQRank * kHidden + kHeads * kHeadDim * kQRank + kHeadDim * kHidden + kORank * kHeads * kHeadDim +
                      kHidden * kGroups * kORank + 3 * kHidden * kInter;
  return static_cast<size_t>(fp8 + kTopk * 3 * kHidden * kInter / 2);
}

WeightPool::WeightPool(size_t bytes) : codes_(bytes), scales_(16 << 20) {
  uint64_t state = 88172645463325252ull;
  for (size_t i = 0; i + 8 <= bytes; i += 8) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    // Where the lower seven bits of a byte are all ones (NaN in e4m3), clear its lowest.
    uint64_t word = state;
    uint64_t ones = word & (word >> 1);
    ones &= ones >> 2;
    ones &= (word >> 4) & (word >> 5) & (word >> 6);
    word &= ~(ones & 0x0101010101010101ull);
    std::memcpy(codes_.data() + i, &word, 8);
  }
  for (size_t i = 0; i < scales_.size(); ++i) scales_[i] = static_cast<uint8_t>(112 + (i * 2654435761u >> 13 & 3));
}

Matrix WeightPool::Cut(WeightFormat format, int64_t rows, int64_t cols) {
  Matrix m = {.format = format, .rows = rows, .cols = cols, .data = codes_.data() + used_, .scale = scales_.data()};
  used_ += static_cast<size_t>(rows) * backend::MatrixRowBytes(m);
  DI_CHECK(used_ <= codes_.size());
  return m;
}

Layer WeightPool::CutLayer() {
  Layer layer;
  layer.wq_a = Cut(WeightFormat::kFp8Tile32, kQRank, kHidden);
  layer.wq_b = Cut(WeightFormat::kFp8Tile32, kHeads * kHeadDim, kQRank);
  layer.wkv = Cut(WeightFormat::kFp8Tile32, kHeadDim, kHidden);
  layer.wo_a = Cut(WeightFormat::kFp8Tile32, kGroups * kORank, kHeads * kHeadDim / kGroups);
  layer.wo_b = Cut(WeightFormat::kFp8Tile32, kHidden, kGroups * kORank);
  const auto expert = [&](WeightFormat format) {
    return backend::ExpertWeights{Cut(format, kInter, kHidden), Cut(format, kInter, kHidden), Cut(format, kHidden, kInter)};
  };
  layer.shared = expert(WeightFormat::kFp8Tile32);
  for (int64_t e = 0; e < kTopk; ++e) layer.experts.push_back(expert(WeightFormat::kFp4Row32));
  return layer;
}

LayerWalk::LayerWalk(int64_t rows)
    : rows_(rows),
      x_(Normals(rows * kHidden)),
      qr_(Normals(rows * kQRank)),
      q_(Normals(rows * kHeads * kHeadDim)),
      kv_(Normals(rows * kHeadDim)),
      o_(Normals(rows * kHeads * kHeadDim)),
      grouped_(Normals(rows * kGroups * kORank)),
      y_(Normals(rows * kHidden)),
      weights_(Normals(rows * kTopk)) {
  for (int64_t i = 0; i < rows * kTopk; ++i) chosen_.push_back(static_cast<int32_t>(i % kTopk));
}

void LayerWalk::Run(backend::Backend& backend, const Layer& l) {
  const auto linear = [&](const Matrix& w, std::vector<float>& x, std::vector<float>& y, int64_t groups = 1) {
    backend.Linear({.rows = rows_, .w = w, .groups = groups, .x = x.data(), .x_stride = groups * w.cols, .y = y.data(),
                    .y_stride = w.rows});
  };
  linear(l.wq_a, x_, qr_);
  linear(l.wq_b, qr_, q_);
  linear(l.wkv, x_, kv_);
  linear(l.wo_a, o_, grouped_, kGroups);
  linear(l.wo_b, grouped_, y_);
  backend.Experts({.rows = rows_, .hidden = kHidden, .topk = kTopk, .num_experts = kTopk, .x = x_.data(),
                   .chosen = chosen_.data(), .weights = weights_.data(), .experts = l.experts.data(), .shared = l.shared,
                   .has_shared = true, .limit = 10.0f, .y = y_.data()});
}

double LayerWalk::macs() const {
  const double fp8 = static_cast<double>(kQRank * kHidden + kHeads * kHeadDim * kQRank + kHeadDim * kHidden +
                                         kORank * kHeads * kHeadDim + kHidden * kGroups * kORank);
  return static_cast<double>(rows_) * (fp8 + static_cast<double>((kTopk + 1) * 3 * kHidden * kInter));
}

}  // namespace deepinfer::bench
