// SPDX-License-Identifier: Apache-2.0
// Compiles constraints without taking processors from the model: nearly all are done in a millisecond, and what takes more
// than 20 goes on at low priority.
#pragma once

#include <functional>

#include "deepinfer/grammar.h"

namespace deepinfer::serving {

using CompileFn = std::function<Result<grammar::CompiledGrammar>(const grammar::CompileOptions& options)>;

// What compile(options) gives. It is called with a time limit of 20 ms first; where it meets a limit, once more, as asked
// for, on a thread of low priority, for which this waits. The limits count processor time, so on a busy machine that may
// take ten times as long.
Result<grammar::CompiledGrammar> CompileAside(const CompileFn& compile, const grammar::CompileOptions& options);

}  // namespace deepinfer::serving
