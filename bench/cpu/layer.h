// SPDX-License-Identifier: Apache-2.0
// Synthetic layers at the published dimensions, cut from one large buffer of random codes, so that a walk over all of
// them reads every byte once: attention projections and the shared expert in FP8, and the routed experts of one token
// in FP4, per layer.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/api/backend.h"

namespace deepinfer::bench {

inline constexpr int64_t kHidden = 5120, kInter = 2304, kQRank = 1280, kHeads = 64, kHeadDim = 512, kGroups = 8,
                         kORank = 1024, kTopk = 6;

struct Layer {
  backend::Matrix wq_a, wq_b, wkv, wo_a, wo_b;
  backend::ExpertWeights shared;
  std::vector<backend::ExpertWeights> experts;  // kTopk
};

size_t MatrixBytes(const backend::Matrix& m);
size_t LayerBytes();

// Matrices one behind the other.
class WeightPool {
 public:
  // Random codes without those of NaN, and scales near 1 / sqrt(columns).
  explicit WeightPool(size_t bytes);
  backend::Matrix Cut(backend::WeightFormat format, int64_t rows, int64_t cols);
  Layer CutLayer();
  void Restart() { used_ = 0; }
  bool Fits(size_t bytes) const { return used_ + bytes <= codes_.size(); }
  std::vector<uint8_t>& codes() { return codes_; }

 private:
  std::vector<uint8_t> codes_;
  std::vector<uint8_t> scales_;
  size_t used_ = 0;
};

// The large products of one layer for `rows` rows, which each choose experts by `chosen`.
class LayerWalk {
 public:
  explicit LayerWalk(int64_t rows);
  void Run(backend::Backend& backend, const Layer& layer);
  // Multiply-adds of one Run.
  double macs() const;

 private:
  int64_t rows_;
  std::vector<float> x_, qr_, q_, kv_, o_, grouped_, y_, weights_;
  std::vector<int32_t> chosen_;
};

}  // namespace deepinfer::bench
