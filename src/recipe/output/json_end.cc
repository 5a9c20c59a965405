// SPDX-License-Identifier: Apache-2.0
#include "recipe/output/json_end.h"

namespace deepinfer::recipe {

size_t JsonEndFinder::Take(std::string_view text) {
  if (done_) return 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string_) {
      if (escaped_) {
        escaped_ = false;
      } else if (c == '\\') {
        escaped_ = true;
      } else if (c == '"') {
        in_string_ = false;
      }
    } else if (c == '"') {
      in_string_ = true;
    } else if (c == '{' || c == '[') {
      ++depth_;
    } else if ((c == '}' || c == ']') && --depth_ == 0) {
      done_ = true;
      return i + 1;
    }
  }
  return text.size();
}

}  // namespace deepinfer::recipe
