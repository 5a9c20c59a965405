// SPDX-License-Identifier: Apache-2.0
// JSON Schema's `format` values as expressions over the decoded string. docs/grammar.md lists what is enforced only in
// part. Stateless.
#pragma once

#include <string_view>

#include "core/status.h"
#include "grammar/expr.h"

namespace deepinfer::grammar {

enum class FormatSupport { kEnforced, kRefused, kUnknown };

// Unknown names are annotations by the standard; names that the standard defines and that are not regular are refused.
FormatSupport SupportOfFormat(std::string_view name);

// REQUIRES: SupportOfFormat(name) == kEnforced.
Result<ExprId> FormatExpr(ExprPool* pool, std::string_view name);

}  // namespace deepinfer::grammar
