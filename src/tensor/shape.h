// SPDX-License-Identifier: Apache-2.0
// The dimensions of a dense row-major tensor: at most 8, each >= 0; none at all is a scalar. A plain value.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>

namespace deepinfer {

class Shape {
 public:
  static constexpr size_t kRankMax = 8;

  Shape() = default;  // a scalar
  // REQUIRES: at most kRankMax dimensions, none negative.
  Shape(std::initializer_list<int64_t> dims) : Shape(std::span(dims.begin(), dims.size())) {}
  explicit Shape(std::span<const int64_t> dims);

  size_t rank() const { return rank_; }
  // REQUIRES: axis < rank().
  int64_t operator[](size_t axis) const;
  std::span<const int64_t> dims() const { return {dims_.data(), rank_}; }

  // Number of elements; nothing where it exceeds int64.
  std::optional<int64_t> NumElements() const;

  std::string ToString() const;  // "[512, 5120]"
  bool operator==(const Shape& other) const = default;

 private:
  std::array<int64_t, kRankMax> dims_ = {};  // zeros beyond rank_, so that == may compare all
  uint8_t rank_ = 0;
};

}  // namespace deepinfer
