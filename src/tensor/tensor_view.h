// SPDX-License-Identifier: Apache-2.0
// A read-only dense row-major tensor in host memory that somebody else owns (a mapped file, a buffer). A plain value;
// valid as long as its owner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "core/check.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace deepinfer {

// The C++ type that holds elements of a DType; FP8 and packed FP4 are bytes, BF16 is its bits.
template <typename T>
constexpr bool HoldsDType(DType dtype);

struct TensorView {
  DType dtype = DType::kBF16;
  Shape shape;
  const std::byte* data = nullptr;  // may be null where there are no elements

  // REQUIRES (all three): the sizes fit, which holds for every tensor that came out of a file.
  int64_t num_elements() const {
    const auto count = shape.NumElements();
    DI_CHECK(count.has_value());
    return *count;
  }
  size_t size_bytes() const { return static_cast<size_t>(num_elements()) * DTypeSize(dtype); }
  std::span<const std::byte> bytes() const { return {data, size_bytes()}; }

  // The elements as T. REQUIRES: T holds this dtype, and data is aligned for it.
  template <typename T>
  std::span<const T> As() const {
    DI_CHECK(HoldsDType<T>(dtype));
    DI_CHECK(reinterpret_cast<uintptr_t>(data) % alignof(T) == 0);
    return {reinterpret_cast<const T*>(data), static_cast<size_t>(num_elements())};
  }
};

template <typename T>
constexpr bool HoldsDType(DType dtype) {
  switch (dtype) {
    case DType::kBool:
    case DType::kU8:
    case DType::kF8E4M3:
    case DType::kF8E5M2:
    case DType::kF8E8M0:
      return std::is_same_v<T, uint8_t>;
    case DType::kI8:  // signed numbers, or two FP4 codes
      return std::is_same_v<T, int8_t> || std::is_same_v<T, uint8_t>;
    case DType::kI16:
      return std::is_same_v<T, int16_t>;
    case DType::kU16:
    case DType::kF16:
    case DType::kBF16:
      return std::is_same_v<T, uint16_t>;
    case DType::kI32:
      return std::is_same_v<T, int32_t>;
    case DType::kU32:
      return std::is_same_v<T, uint32_t>;
    case DType::kF32:
      return std::is_same_v<T, float>;
    case DType::kI64:
      return std::is_same_v<T, int64_t>;
    case DType::kU64:
      return std::is_same_v<T, uint64_t>;
    case DType::kF64:
      return std::is_same_v<T, double>;
  }
  return false;
}

}  // namespace deepinfer
