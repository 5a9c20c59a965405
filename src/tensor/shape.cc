// SPDX-License-Identifier: Apache-2.0
#include "tensor/shape.h"

#include <fmt/ranges.h>

#include "core/check.h"

namespace deepinfer {

Shape::Shape(std::span<const int64_t> dims) {
  DI_CHECK(dims.size() <= kRankMax);
  for (const int64_t dim : dims) {
    DI_CHECK(dim >= 0);
    dims_[rank_++] = dim;
  }
}

int64_t Shape::operator[](size_t axis) const {
  DI_CHECK(axis < rank_);
  return dims_[axis];
}

std::optional<int64_t> Shape::NumElements() const {
  int64_t count = 1;
  bool overflow = false;
  for (const int64_t dim : dims()) {
    // A zero anywhere makes the product 0, whatever the others are.
    if (dim == 0) return 0;
    overflow = overflow || __builtin_mul_overflow(count, dim, &count);
  }
  if (overflow) return std::nullopt;
  return count;
}

std::string Shape::ToString() const { return fmt::format("[{}]", fmt::join(dims(), ", ")); }

}  // namespace deepinfer
