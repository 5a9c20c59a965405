// SPDX-License-Identifier: Apache-2.0
// The attributes of a parameter's opening tag. Stateless.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace deepinfer::recipe {

enum class ParameterType : uint8_t { kString, kJson, kUnstated };

struct ParameterHeader {
  std::string name;
  ParameterType type = ParameterType::kUnstated;
};

// `text` stands between the tag's name and a `>`, for example `name="k" string="true"`. Nothing where it is not whole:
// the `>` is then part of a name. Read leniently: any order, spaces and quotes, unknown attributes ignored, the last
// `string` counts; a name may hold quotes where ` string="true"` or ` string="false"` ends the tag.
std::optional<ParameterHeader> ParseParameterHeader(std::string_view text);

}  // namespace deepinfer::recipe
