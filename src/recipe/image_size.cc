// SPDX-License-Identifier: Apache-2.0
// The size rule of the reference image processor, in doubles, in its order of operations: another order moves some
// floors by one. It is applied to its own result until nothing changes, so that an engine that plans once more gets the
// same size.
#include "recipe/image_size.h"

#include <algorithm>
#include <cmath>

namespace deepinfer::recipe {
namespace {

constexpr int64_t kPatch = 14;                // pixels
constexpr int64_t kMerge = 3;                 // patches a side of a token
constexpr int64_t kCell = kPatch * kMerge;    // pixels a side of a token
constexpr int64_t kAreaMin = 544 * 544;       // smaller images are enlarged
constexpr int64_t kTokensMax = 1024;
constexpr int64_t kStoredSideMax = 16'383;    // of the format (WebP) that images are stored in
constexpr int kRoundsMax = 10;

int64_t CeilDivide(int64_t value, int64_t divisor) { return (value + divisor - 1) / divisor; }

int64_t FloorToPatch(double value) { return static_cast<int64_t>(std::floor(value / kPatch)) * kPatch; }

int64_t TokensOf(ImageSize size) {
  const int64_t rows = CeilDivide(CeilDivide(size.height, kPatch), kMerge);
  const int64_t columns = CeilDivide(CeilDivide(size.width, kPatch), kMerge);
  return rows * (columns + 1) + 2;
}

// Brings an image of too many tokens down to the largest grid of its shape.
ImageSize Shrink(int64_t width, int64_t height) {
  const auto w = static_cast<double>(width);
  const auto h = static_cast<double>(height);
  const double ratio = h / w;
  const double x = std::sqrt((kTokensMax - 2) / ratio + 0.25) - 0.5;
  const double y = x * ratio;
  if (x < 1) return {kCell, (kTokensMax - 2) / 2 * kCell};
  if (y < 1) return {(kTokensMax - 3) * kCell, kCell};
  const double scale = std::min(std::floor(x) * kCell / w, std::floor(y) * kCell / h);
  return {FloorToPatch(w * scale), FloorToPatch(h * scale)};
}

ImageSize PlanOnce(ImageSize size) {
  int64_t w = size.width;
  int64_t h = size.height;
  if (w * h < kAreaMin) {
    const double scale = std::sqrt(static_cast<double>(kAreaMin) / static_cast<double>(w * h));
    w = static_cast<int64_t>(static_cast<double>(w) * scale);
    h = static_cast<int64_t>(static_cast<double>(h) * scale);
  }
  const ImageSize padded = {CeilDivide(w, kPatch) * kPatch, CeilDivide(h, kPatch) * kPatch};
  return TokensOf(padded) <= kTokensMax ? padded : Shrink(w, h);
}

ImageSize Plan(ImageSize size) {
  for (int round = 0; round < kRoundsMax; ++round) {
    const ImageSize next = PlanOnce(size);
    if (next == size) break;
    size = next;
  }
  return size;
}

ImageSize FitStored(ImageSize size) {
  constexpr int64_t kSideMax = kStoredSideMax / kPatch * kPatch;
  return {std::min(size.width, kSideMax), std::min(size.height, kSideMax)};
}

ImageSize LowDetail(ImageSize size, int64_t side_max) {
  const int64_t longest = std::max(size.width, size.height);
  if (longest <= side_max) return size;
  const double scale = static_cast<double>(side_max) / static_cast<double>(longest);
  const auto fit = [&](int64_t side) {
    return std::max<int64_t>(1, static_cast<int64_t>(std::round(static_cast<double>(side) * scale)));
  };
  return {fit(size.width), fit(size.height)};
}

}  // namespace

int64_t CountImageTokens(ImageSize size) { return TokensOf(Plan(size)); }

Result<ImagePlan> PlanImage(ImageSize source, ImageDetail detail, const ImageLimits& limits) {
  if (source.width < 1 || source.height < 1) {
    return Error(Code::kInvalidArgument, "an image of {} x {} pixels is empty", source.width, source.height);
  }
  if (std::max(source.width, source.height) > limits.side_max) {
    return Error(Code::kInvalidArgument, "an image of {} x {} pixels is over the limit of {} a side", source.width,
                 source.height, limits.side_max);
  }
  if (detail == ImageDetail::kLow) source = LowDetail(source, limits.low_detail_side_max);
  ImagePlan plan;
  plan.size = FitStored(Plan(source));
  plan.tokens = CountImageTokens(plan.size);
  return plan;
}

}  // namespace deepinfer::recipe
