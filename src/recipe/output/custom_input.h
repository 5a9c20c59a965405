// SPDX-License-Identifier: Apache-2.0
// The input of a custom tool out of the arguments of the function that stands for it: {"input": "..."}, read as the
// arguments are streamed. Not for concurrent use.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace deepinfer::recipe {

class CustomInput {
 public:
  // The next piece of the arguments; returns the piece of the input that it makes known. Arguments of another shape
  // pass through as they are. What follows the input's closing quote is ignored. A half of a surrogate pair without
  // the other is U+FFFD.
  std::string Push(std::string_view arguments);
  // The end: arguments that stopped before their shape was known pass through.
  std::string Finish();

 private:
  enum class State { kPrefix, kString, kEscape, kUnicode, kDone, kPassThrough };

  void TakePrefix(char c, std::string* out);
  void TakeEscape(char c, std::string* out);
  void TakeUnicode(char c, std::string* out);
  void FlushSurrogate(std::string* out);

  State state_ = State::kPrefix;
  std::string prefix_;    // read so far, while it may still be the beginning of the shape
  size_t matched_ = 0;    // pieces of the shape
  size_t in_piece_ = 0;
  uint32_t unit_ = 0;
  int digits_ = 0;
  uint32_t high_ = 0;  // a high surrogate that waits for its low one
};

}  // namespace deepinfer::recipe
