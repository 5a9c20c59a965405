// SPDX-License-Identifier: Apache-2.0
#include "recipe/fixed_texts.h"

namespace deepinfer::recipe {
namespace {
#include <recipe_texts.inc>
}  // namespace

const FixedTexts& Texts() {
  static constexpr FixedTexts kTexts = {
      .tools_v41 = k_tools_v41,
      .tools_v4 = k_tools_v4,
      .effort_percent = k_effort_percent,
      .effort_high_v4 = k_effort_high_v4,
      .effort_max_v4 = k_effort_max_v4,
      .response_format = k_response_format,
      .response_format_v4_json_object = k_response_format_v4_json_object,
      .apply_patch = k_apply_patch,
      .apply_patch_schema = k_apply_patch_schema,
  };
  return kTexts;
}

}  // namespace deepinfer::recipe
