// SPDX-License-Identifier: Apache-2.0
// The backend that the engine tests of a program run on.
#pragma once

#include <cstdio>
#include <string>

#include "engine/loaded_model.h"

namespace deepinfer::engine {

inline std::string test_backend = "cpu";
inline std::string test_activations = "fp32";

// For main(): 0, or, after saying why, what ctest takes for a skipped test.
inline int SkipWithoutBackend() {
  const auto backend = CreateBackend({.name = test_backend});
  if (backend.ok()) return 0;
  std::fprintf(stderr, "skipped: %s\n", backend.status().message().c_str());
  return 77;
}

}  // namespace deepinfer::engine
