// SPDX-License-Identifier: Apache-2.0
// What the output of a request must match, as a constraint for src/grammar: response formats, guided decoding, and tool
// calls, which cannot be malformed. Decided here and nowhere else (docs/grammar.md, "From a request to a grammar").
// Thread-safe: functions of their arguments.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "deepinfer/grammar.h"
#include "recipe/request.h"
#include "recipe/schema.h"

namespace deepinfer::recipe {

// The id of an added token by its spelling; nothing where the tokenizer has none.
using TokenLookup = std::function<std::optional<int32_t>(std::string_view)>;

struct OutputGrammar {
  grammar::Constraint constraint;
  // To be tried where `constraint` asks for what cannot be enforced (kUnimplemented): the arguments of tools that are not
  // strict are free then. Absent: that is an error.
  std::optional<grammar::Constraint> lenient;
  // The grammar begins behind this token, which ends the thinking; none: with the first token.
  std::optional<int32_t> begins_after;
  // Text at the prompt's end that is the beginning of the output: the grammar has read it.
  std::string text_in_prompt;
  std::string field;  // JSON pointer of what asks for it, for errors
  bool compact = false;  // to be compiled without blanks between JSON tokens
};

// How JSON is written where the request does not say.
struct OutputDefaults {
  bool compact = false;
  SchemaForm schema;
};

// The grammar of content alone.
grammar::Constraint ContentGrammar(const ContentConstraint& content, const SchemaForm& form = {});

// Nothing where every output will do. Errors: kInvalidArgument (constraints that contradict each other, with the field),
// kFailedPrecondition (the tokenizer lacks a token that is needed).
Result<std::optional<OutputGrammar>> MakeOutputGrammar(const Request& request, const TokenLookup& lookup,
                                                         const OutputDefaults& defaults = {});

// Compiles it through `cache`. Errors name the field: kInvalidArgument, as what cannot be enforced is as much the request's
// fault as what is wrong, kResourceExhausted (a limit of `options`), or kCancelled. May take as long as options.limits
// allow, twice where there is a lenient form.
Result<grammar::CompiledGrammar> CompileOutputGrammar(const OutputGrammar& output, grammar::CompileCache* cache,
                                                      const std::shared_ptr<const grammar::Vocabulary>& vocabulary,
                                                      const grammar::CompileOptions& options);

}  // namespace deepinfer::recipe
