// SPDX-License-Identifier: Apache-2.0
// How large an image becomes for V4.1's vision encoder, and how many tokens it takes: arithmetic on the size alone, so it
// can be done from a file's header, before anything is decoded.
// Thread-safe: functions of their arguments.
#pragma once

#include <cstdint>

#include "core/status.h"
#include "recipe/conversation.h"

namespace deepinfer::recipe {

struct ImageSize {
  int64_t width = 0;
  int64_t height = 0;
  bool operator==(const ImageSize&) const = default;
};

struct ImageLimits {
  int64_t side_max = 8192;             // longer images are refused; see ImageSideMax
  int64_t low_detail_side_max = 512;   // with detail "low" the longer side is brought down to this first
};

// The longest side that a request with so many images may have.
constexpr int64_t ImageSideMax(size_t num_images) { return num_images >= 15 ? 4096 : 8192; }

struct ImagePlan {
  ImageSize size;      // after preprocessing: multiples of 14
  int64_t tokens = 0;  // start, rows of 3 x 3 patches with a separator each, end: at most 1024
};

// Errors (kInvalidArgument): a side of 0, or over the limit.
Result<ImagePlan> PlanImage(ImageSize source, ImageDetail detail, const ImageLimits& limits = {});

// Tokens of an image of that size as it stands. REQUIRES: sides of at least 1.
int64_t CountImageTokens(ImageSize size);

}  // namespace deepinfer::recipe
