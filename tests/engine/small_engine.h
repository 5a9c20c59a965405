// SPDX-License-Identifier: Apache-2.0
// A small engine on the bundled model that tests step by hand.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "engine/batch_engine.h"
#include "tests/engine/test_backend.h"

namespace deepinfer::engine {

// A main(): PROGRAM [BACKEND]. Where this machine has none, it says why and returns what ctest takes for a skipped test.
inline int RunTestsOn(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc > 1) test_backend = argv[1];
  if (const int skipped = SkipWithoutBackend(); skipped != 0) return skipped;
  return RUN_ALL_TESTS();
}

inline EngineOptions SmallOptions() {
  EngineOptions options{.model_directory = std::string(DI_SOURCE_DIR) + "/models/deepseek-v41-tiny",
                        .backend = test_backend,
                        .num_threads = 2};
  options.context_max = 1024;
  options.kv_memory_bytes = 48 << 20;
  options.requests_running_max = 8;
  options.step_rows_max = 128;
  options.own_thread = false;
  return options;
}

inline std::unique_ptr<BatchEngine> Open(const EngineOptions& options = SmallOptions()) {
  auto engine = BatchEngine::Create(options);
  EXPECT_TRUE(engine.ok()) << engine.status().message();
  return *std::move(engine);
}

}  // namespace deepinfer::engine
