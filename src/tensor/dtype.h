// SPDX-License-Identifier: Apache-2.0
// Element types of stored tensors, as safetensors spells them. FP4 weights have no type of their own: they are packed
// two to a byte and stored as I8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace deepinfer {

enum class DType : uint8_t {
  kBool,
  kU8,
  kI8,
  kF8E4M3,
  kF8E5M2,
  kF8E8M0,
  kI16,
  kU16,
  kF16,
  kBF16,
  kI32,
  kU32,
  kF32,
  kI64,
  kU64,
  kF64,
};

// "BF16", "F8_E4M3" and so on.
std::string_view DTypeName(DType dtype);
// The type of that exact spelling, if it is one.
std::optional<DType> ParseDType(std::string_view name);
// Bytes of one element.
size_t DTypeSize(DType dtype);

}  // namespace deepinfer
