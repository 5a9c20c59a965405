// SPDX-License-Identifier: Apache-2.0
// One server-sent event. Plain values and stateless functions.
#pragma once

#include <string>
#include <vector>

namespace deepinfer::recipe {

struct SseEvent {
  std::string event;  // empty: the event has no name
  std::string data;   // one line; empty: a comment that keeps the connection alive
};

// The event as bytes of a text/event-stream, its empty line included.
void AppendSse(const SseEvent& event, std::string* out);

}  // namespace deepinfer::recipe
