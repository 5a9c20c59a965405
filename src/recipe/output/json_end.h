// SPDX-License-Identifier: Apache-2.0
// Where a JSON object or array ends in a stream of text. Follows brackets and strings only; whether the value is valid
// is not its business. Not for concurrent use.
#pragma once

#include <cstddef>
#include <string_view>

namespace deepinfer::recipe {

class JsonEndFinder {
 public:
  // Bytes of `text` that belong to the value, which begins with the first byte ever given. Zero after its end.
  size_t Take(std::string_view text);
  bool done() const { return done_; }

 private:
  size_t depth_ = 0;
  bool in_string_ = false;
  bool escaped_ = false;
  bool done_ = false;
};

}  // namespace deepinfer::recipe
