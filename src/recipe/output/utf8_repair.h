// SPDX-License-Identifier: Apache-2.0
// Bytes in any pieces -> whole characters: an unfinished one is kept for the next piece, bytes that are no UTF-8 become
// U+FFFD, one for each maximal subpart (as core/utf8.h counts them). Holds at most 3 bytes. Not for concurrent use.
#pragma once

#include <string>
#include <string_view>

#include "core/utf8.h"

namespace deepinfer::recipe {

// Bytes of the longest beginning of `text` that is whole, valid characters. Fast for all scripts.
size_t ValidUtf8Prefix(std::string_view text);

class Utf8Repair {
 public:
  // Calls feed(std::string_view) with runs of whole characters.
  template <typename F>
  void Push(std::string_view bytes, F&& feed) {
    while (!pending_.empty() && !bytes.empty()) {
      pending_ += bytes.front();
      const Utf8Char c = DecodeUtf8(pending_);
      if (c.truncated) {
        bytes.remove_prefix(1);
      } else if (c.valid) {
        bytes.remove_prefix(1);
        feed(std::string_view(pending_));
        pending_.clear();
      } else {  // the byte is not part of that character: it is looked at again below
        pending_.clear();
        feed(kReplacement);
      }
    }
    while (!bytes.empty()) {
      const size_t valid = ValidUtf8Prefix(bytes);
      if (valid > 0) feed(bytes.substr(0, valid));
      bytes.remove_prefix(valid);
      if (bytes.empty()) return;
      const Utf8Char c = DecodeUtf8(bytes);
      if (c.truncated) {
        pending_ = bytes;
        return;
      }
      feed(kReplacement);
      bytes.remove_prefix(c.size);
    }
  }
  // The end, or a control token: an unfinished character is none.
  template <typename F>
  void Flush(F&& feed) {
    if (pending_.empty()) return;
    pending_.clear();
    feed(kReplacement);
  }
  // Whether a character is unfinished.
  bool HoldsBack() const { return !pending_.empty(); }

 private:
  static constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
  std::string pending_;
};

}  // namespace deepinfer::recipe
