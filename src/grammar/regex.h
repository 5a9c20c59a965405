// SPDX-License-Identifier: Apache-2.0
// Regular expressions in ECMA-262 syntax (Unicode mode, with the harmless identity escapes that people write) to byte
// expressions over UTF-8. Refused with the offset: look-around, back-references, word boundaries, inline flags.
#pragma once

#include <string_view>

#include "core/status.h"
#include "grammar/expr.h"

namespace deepinfer::grammar {

enum class RegexMatch {
  kWhole,   // the expression must match the whole text; ^ and $ are allowed at its ends
  kSearch,  // it must match somewhere in the text: JSON Schema's `pattern`
};

// Errors: kInvalidArgument for bad syntax, kUnimplemented for what is refused; both name the byte offset.
Result<ExprId> ParseRegex(ExprPool* pool, std::string_view pattern, RegexMatch match);

// One character, and any text: valid UTF-8 of any length.
ExprId AnyChar(ExprPool* pool);
ExprId AnyText(ExprPool* pool);

}  // namespace deepinfer::grammar
