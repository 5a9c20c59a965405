// SPDX-License-Identifier: Apache-2.0
// The fixed texts of the prompt format: see src/recipe/text/README.md for their source and licence.
// Thread-safe: constants.
#pragma once

#include <string_view>

namespace deepinfer::recipe {

struct FixedTexts {
  std::string_view tools_v41;  // {schemas} is to be filled in
  std::string_view tools_v4;
  std::string_view effort_percent;  // {n}
  std::string_view effort_high_v4;
  std::string_view effort_max_v4;
  std::string_view response_format;  // {schema}
  std::string_view response_format_v4_json_object;
  std::string_view apply_patch;
  std::string_view apply_patch_schema;  // JSON
};
const FixedTexts& Texts();

}  // namespace deepinfer::recipe
