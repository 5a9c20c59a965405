// SPDX-License-Identifier: Apache-2.0
// Prompts of four kinds for measuring drafts of the bundled model, which is small and knows what it was trained on:
//   tasks   what its card lists: tool calls, JSON, capitals, weekdays, objects, a needle, sums, repeated words, in its own format
//   calls   tool calls alone
//   chat    open questions and stories; half of them are beyond it
//   prose   beginnings in the manner of its books, without a chat around them
#pragma once

#include <cstdint>
#include <string>
#include <vector>

using Prompts = std::vector<std::vector<int32_t>>;

// Token ids, begin token in front. Exits with a message where the model cannot be read.
Prompts MakePrompts(const std::string& model, const std::string& kind);
