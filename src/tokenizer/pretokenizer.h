// SPDX-License-Identifier: Apache-2.0
// The borders at which a text is cut into pieces before BPE, which never joins across them.
//
// Two implementations: any sequence of split patterns from a file (regex_splitter.h), and the published DeepSeek
// patterns by table (deepseek_splitter.h), about 20 times as fast. Both are immutable and shared between threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"

namespace deepinfer {

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;

  // Cuts `text`, valid UTF-8 of less than 2^32 bytes, from `*position` on: appends the ends of the next pieces to
  // `ends` and moves `*position` to the last of them. At least one piece where text is left; an implementation
  // chooses how many come in one call.
  virtual Status Split(std::string_view text, size_t* position, std::vector<uint32_t>* ends) const = 0;

  // True when `text` may be cut at `offset` (a character's beginning, not 0 nor the end) and the parts split on
  // their own: the same pieces, whatever surrounds the two characters there.
  virtual bool SafeCut(std::string_view text, size_t offset) const = 0;
};

// `patterns` in order, each applied inside the pieces of the one before. Errors: kUnimplemented (a construct that is
// not the same in PCRE2), kDataLoss (no regular expression).
Result<std::unique_ptr<PreTokenizer>> MakePreTokenizer(const std::vector<std::string>& patterns);

}  // namespace deepinfer
