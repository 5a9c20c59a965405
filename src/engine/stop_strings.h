// SPDX-License-Identifier: Apache-2.0
// Stop strings in a stream of text: passes on what can no longer be part of one, holds back what could be, and tells when
// one is complete. The text up to the stop string comes out, the stop string and what follows does not.
// Plain value, one thread at a time. Holds back fewer bytes than the longest stop string has.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace deepinfer::engine {

class StopStrings {
 public:
  // REQUIRES: no stop string is empty.
  explicit StopStrings(std::vector<std::string> stops) : stops_(std::move(stops)) { held_.reserve(256); }

  // Appends to `out` the text that is free to go. True once a stop string is complete; nothing may be pushed after that.
  // The one that is complete first counts; of several that end at the same byte, the longest.
  bool Push(std::string_view text, std::string* out);
  // The stream ends: what was held back goes.
  void Flush(std::string* out);

 private:
  std::vector<std::string> stops_;
  std::string held_;
};

}  // namespace deepinfer::engine
