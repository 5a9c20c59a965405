// SPDX-License-Identifier: Apache-2.0
// Whether a JSON string, escapes and all, may still become one whose text is of a language: decoded from its beginning each
// time, with every character tried that an unfinished escape can become. Slow, and independent of src/grammar/lexer.h.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "slow_matcher.h"

namespace deepinfer::grammar {

class SlowString {
 public:
  // `usual`: ASCII letters and digits are not written as \u. REQUIRES: of the language, as SlowMatcher; it treats all
  // characters alike but those below U+0100.
  SlowString(const SlowGrammar* grammar, bool usual) : text_(grammar), usual_(usual) {}

  void AcceptAll(std::string_view bytes) { read_ += bytes; }
  bool CanAccept(std::string_view bytes) { return Fits(read_ + std::string(bytes), nullptr); }
  bool IsComplete() {
    bool closed = false;
    return Fits(read_, &closed) && closed;
  }
  void Pop(size_t bytes) { read_.resize(read_.size() - bytes); }

 private:
  // Whether it begins a JSON string of the language; `closed`: whether it is a whole one.
  bool Fits(std::string_view json, bool* closed);
  // Whether the text may go on with one of these characters.
  bool FitsAny(const std::string& text, uint32_t first, uint32_t last, bool escaped_in_full);

  SlowMatcher text_;
  bool usual_;
  std::string read_;
};

}  // namespace deepinfer::grammar
