// SPDX-License-Identifier: Apache-2.0
// Small facts about a call that all endpoints need. Functions of their arguments, and the clock.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "server/http/exchange.h"

namespace deepinfer::server {

// Whom stored responses belong to: the key's name, and nobody where no keys are configured.
inline std::string OwnerOf(const HttpRequest& request) { return request.key == nullptr ? std::string() : request.key->name; }

inline int64_t UnixSeconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace deepinfer::server
