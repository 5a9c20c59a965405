// SPDX-License-Identifier: Apache-2.0
// What an answer on the command line must match: --json-schema and its like, to a grammar for the engine.
#pragma once

#include <memory>

#include "cli/options.h"
#include "deepinfer/engine.h"
#include "deepinfer/grammar.h"
#include "recipe/conversation.h"
#include "recipe/request.h"

namespace deepinfer::cli {

// What the flags ask for; nothing where they ask for nothing. Reads files. Errors begin with the flag.
Result<std::optional<recipe::ContentConstraint>> ReadConstraint(const ConstraintOptions& options);

// Compiled as the server does it. Errors name the flag, and keyword and place in what it gave:
// "--json-schema: #/properties/a/pattern: keyword ...".
Result<std::shared_ptr<const grammar::CompiledGrammar>> CompileConstraint(const recipe::ContentConstraint& content,
                                                                          const Engine& engine);

// How a prompt tells the model of it: a schema as a response format, all else not at all.
Result<recipe::ResponseFormat> FormatOf(const recipe::ContentConstraint& content);

}  // namespace deepinfer::cli
