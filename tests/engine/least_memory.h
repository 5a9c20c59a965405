// SPDX-License-Identifier: Apache-2.0
// The smallest cache that an engine takes, for tests of preemption.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "deepinfer/engine.h"

namespace deepinfer {

// Sets kv_memory_bytes to what one request of the longest length needs: an engine that gets too little says how much that is.
inline void SetLeastMemory(EngineOptions* options) {
  options->kv_memory_bytes = 1000;
  std::string why;
  ASSERT_EQ(Engine::Open(*options, &why), nullptr);
  options->kv_memory_bytes = std::atoll(why.c_str() + why.rfind("; ") + 2);
}

}  // namespace deepinfer
