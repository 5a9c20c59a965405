// SPDX-License-Identifier: Apache-2.0
#include "engine/stop_strings.h"

#include <algorithm>

namespace deepinfer::engine {

bool StopStrings::Push(std::string_view text, std::string* out) {
  held_ += text;
  size_t begin = 0, end = std::string::npos;
  for (const std::string& stop : stops_) {
    const size_t at = held_.find(stop);
    if (at == std::string::npos) continue;
    if (at + stop.size() < end || (at + stop.size() == end && at < begin)) {
      begin = at;
      end = at + stop.size();
    }
  }
  if (end != std::string::npos) {
    out->append(held_, 0, begin);
    held_.clear();
    return true;
  }
  // The longest end of what is held that begins some stop string must wait.
  size_t wait = 0;
  for (const std::string& stop : stops_) {
    for (size_t n = std::min(stop.size() - 1, held_.size()); n > wait; --n) {
      if (held_.compare(held_.size() - n, n, stop, 0, n) == 0) wait = n;
    }
  }
  out->append(held_, 0, held_.size() - wait);
  held_.erase(0, held_.size() - wait);
  return false;
}

void StopStrings::Flush(std::string* out) {
  *out += held_;
  held_.clear();
}

}  // namespace deepinfer::engine
