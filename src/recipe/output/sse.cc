// SPDX-License-Identifier: Apache-2.0
#include "recipe/output/sse.h"

namespace deepinfer::recipe {

void AppendSse(const SseEvent& event, std::string* out) {
  if (event.data.empty()) {
    *out += ": keep-alive\n\n";
    return;
  }
  if (!event.event.empty()) {
    *out += "event: ";
    *out += event.event;
    *out += '\n';
  }
  *out += "data: ";
  *out += event.data;
  *out += "\n\n";
}

}  // namespace deepinfer::recipe
