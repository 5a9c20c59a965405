// SPDX-License-Identifier: Apache-2.0
#include "serving/compile_aside.h"

#include <algorithm>
#include <optional>
#include <thread>

#include "core/low_priority.h"

namespace deepinfer::serving {

Result<grammar::CompiledGrammar> CompileAside(const CompileFn& compile, const grammar::CompileOptions& options) {
  constexpr std::chrono::milliseconds kQuick{20};
  grammar::CompileOptions quick = options;
  quick.limits.time = std::min(quick.limits.time, kQuick);
  Result<grammar::CompiledGrammar> compiled = compile(quick);
  if (compiled.ok() || compiled.status().code() != Code::kResourceExhausted) return compiled;
  std::optional<Result<grammar::CompiledGrammar>> again;
  std::thread([&] {
    LowerThreadPriority();
    again = compile(options);
  }).join();
  return *std::move(again);
}

}  // namespace deepinfer::serving
