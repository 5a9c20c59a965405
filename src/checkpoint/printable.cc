// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/printable.h"

namespace deepinfer::checkpoint {

std::string Printable(std::string_view text) {
  constexpr size_t kShownMax = 200;
  std::string shown;
  for (const char c : text.substr(0, kShownMax)) shown += c >= ' ' && c <= '~' ? c : '?';
  if (text.size() > kShownMax) shown += "...";
  return shown;
}

}  // namespace deepinfer::checkpoint
