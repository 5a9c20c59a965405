// SPDX-License-Identifier: Apache-2.0
// Split patterns are written for Oniguruma (Ruby syntax) with Unicode 16 classes; they run in PCRE2, whose classes
// are older. TranslateRegex writes every class out as ranges (unicode_classes.h) and refuses what the two engines
// do not understand alike, so that a pattern means the same or is an error. Stateless.
#pragma once

#include <string>
#include <string_view>

#include "core/status.h"

namespace deepinfer {

// Errors: kUnimplemented with the construct and its offset; kDataLoss for a pattern that is no UTF-8.
Result<std::string> TranslateRegex(std::string_view pattern);

}  // namespace deepinfer
