// SPDX-License-Identifier: Apache-2.0
#include "tensor/dtype.h"

#include <iterator>

#include "core/check.h"

namespace deepinfer {
namespace {

struct Info {
  std::string_view name;
  size_t size;
};

// In the order of the enumeration.
constexpr Info kInfos[] = {
    {"BOOL", 1}, {"U8", 1},   {"I8", 1},  {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"F8_E8M0", 1}, {"I16", 2}, {"U16", 2},
    {"F16", 2},  {"BF16", 2}, {"I32", 4}, {"U32", 4},     {"F32", 4},     {"I64", 8},     {"U64", 8}, {"F64", 8},
};
static_assert(std::size(kInfos) == static_cast<size_t>(DType::kF64) + 1);

const Info& InfoOf(DType dtype) {
  const auto index = static_cast<size_t>(dtype);
  DI_CHECK(index < std::size(kInfos));
  return kInfos[index];
}

}  // namespace

std::string_view DTypeName(DType dtype) { return InfoOf(dtype).name; }

size_t DTypeSize(DType dtype) { return InfoOf(dtype).size; }

std::optional<DType> ParseDType(std::string_view name) {
  for (size_t i = 0; i < std::size(kInfos); ++i) {
    if (kInfos[i].name == name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

}  // namespace deepinfer
