// SPDX-License-Identifier: Apache-2.0
// Splitting by the patterns of a file, run by PCRE2. Immutable; threads share it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tokenizer/pretokenizer.h"

namespace deepinfer {

// The general implementation of MakePreTokenizer(). Its Split() gives all pieces at once, and it knows no safe cut.
Result<std::unique_ptr<PreTokenizer>> MakeRegexSplitter(const std::vector<std::string>& patterns);

}  // namespace deepinfer
