// SPDX-License-Identifier: Apache-2.0
#include "layer_cost.h"

#include <algorithm>
#include <cmath>

namespace deepinfer::bench {
namespace {

constexpr double kHidden = 5120, kInner = 2304, kVocab = 129280, kHeads = 64, kDim = 512, kWindow = 128, kTopk = 512;
constexpr double kIndexHeads = 32, kIndexDim = 128, kCandidates = 2048 * 8;
constexpr double kAttentionWeights = 1280 * kHidden + 32768.0 * 1280 + 512 * kHidden + 8192.0 * 4096 + kHidden * 8192;
constexpr double kExpertWeights = 3 * kHidden * kInner;
constexpr double kExpertBytes = kExpertWeights * (0.5 + 1.0 / 32);
constexpr double kIndexWeights = 4096.0 * 1280;
constexpr double kEngramWeights = 25600.0 * 6144;
constexpr double kMixWeights = 2 * 24.0 * 4 * kHidden;  // fp32
constexpr double kWindowRowBytes = kDim + kDim / 32, kLatentBytes = kDim / 2 + kDim / 16, kIndexKeyBytes = kIndexDim / 2 + kIndexDim / 32;

enum Kind { kPlain, kReuse, kSource2, kSource1, kRestricted };

Kind KindOf(int layer) {
  if (layer < 2) return kPlain;
  if (layer == 2 || layer == 8 || layer == 14) return kSource2;
  if (layer == 20) return kSource1;
  return layer > 20 && layer % 4 == 0 ? kRestricted : kReuse;
}

// Keys that the indexer of a layer scores for one row at `context`.
double Scored(Kind kind, double context) {
  if (kind == kSource2) return context / 2;
  if (kind == kSource1) return context;
  return kind == kRestricted ? std::min(context, kCandidates) : 0;
}

double Keys(Kind kind, double context) {
  return std::min(kWindow, context) + (kind == kPlain ? 0 : std::min(kTopk, context));
}

double WeightBytes(int layer, double active_experts) {
  double bytes = (kAttentionWeights + kExpertWeights) * (1 + 1.0 / 1024) + active_experts * kExpertBytes + 4 * kMixWeights;
  if (Scored(KindOf(layer), 1) > 0) bytes += kIndexWeights;
  if (layer == 1 || layer == 14) bytes += kEngramWeights;
  return bytes;
}

// Of one row.
double RowFlops(int layer, double context) {
  const Kind kind = KindOf(layer);
  double flops = 2 * (kAttentionWeights + 7 * kExpertWeights + kMixWeights) + 4 * kHeads * kDim * Keys(kind, context);
  const double scored = Scored(kind, context);
  if (scored > 0) flops += 2 * kIndexWeights + 2 * kIndexHeads * kIndexDim * scored;
  if (layer == 1 || layer == 14) flops += 2 * kEngramWeights;
  return flops;
}

}  // namespace

Cost DecodeCost(int64_t batch, int64_t context, int64_t experts) {
  const auto rows = static_cast<double>(batch), length = static_cast<double>(context), all = static_cast<double>(experts);
  const double active = all * (1 - std::pow(1 - 6 / all, rows));
  Cost cost{.bytes = 2 * kVocab * kHidden, .flops = rows * 2 * kVocab * kHidden};
  for (int layer = 0; layer < 40; ++layer) {
    const Kind kind = KindOf(layer);
    cost.bytes += WeightBytes(layer, active) + rows * (kWindow * kWindowRowBytes + (Keys(kind, length) - kWindow) * kLatentBytes +
                                                       Scored(kind, length) * kIndexKeyBytes);
    cost.flops += rows * RowFlops(layer, length);
  }
  return cost;
}

Cost PrefillCost(int64_t tokens, bool exact, int64_t experts) {
  const auto length = static_cast<double>(tokens);
  Cost cost{.bytes = 2 * kVocab * kHidden, .flops = 2 * kVocab * kHidden};
  for (int layer = 0; layer < 40; ++layer) {
    // Rows whose attention and experts run; layer 20 alone stores keys for all and goes on with fewer.
    const double late = std::min(length, exact ? (39 - layer) * (kWindow - 1) + 1 : kWindow), rows = layer < 20 ? length : late;
    cost.bytes += WeightBytes(layer, static_cast<double>(experts));
    cost.flops += rows * RowFlops(layer, layer < 20 ? length / 2 : length);
  }
  return cost;
}

}  // namespace deepinfer::bench
