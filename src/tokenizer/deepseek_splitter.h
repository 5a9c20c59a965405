// SPDX-License-Identifier: Apache-2.0
// The split patterns of the published DeepSeek tokenizers (V3 to V4.1), executed by a table of character classes and
// a scanner in place of a regex engine. The result is that of the patterns, character for character; the tests hold
// it against PCRE2. Immutable; threads share it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tokenizer/pretokenizer.h"

namespace deepinfer {

// True for exactly the published patterns (in either spelling of their escapes), in their order.
bool IsDeepSeekPattern(const std::vector<std::string>& patterns);

// Its Split() gives up to a few hundred pieces a call, and starts again anywhere that a piece ends.
std::unique_ptr<PreTokenizer> MakeDeepSeekSplitter();

}  // namespace deepinfer
