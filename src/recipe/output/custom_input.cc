// SPDX-License-Identifier: Apache-2.0
#include "recipe/output/custom_input.h"

#include <array>

#include "core/utf8.h"

namespace deepinfer::recipe {
namespace {

// Blanks may stand before each of them.
constexpr std::array<std::string_view, 4> kShape = {"{", "\"input\"", ":", "\""};

bool IsBlank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

}  // namespace

std::string CustomInput::Push(std::string_view arguments) {
  std::string out;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const char c = arguments[i];
    switch (state_) {
      case State::kPrefix: TakePrefix(c, &out); break;
      case State::kString:
        if (c == '\\') {
          state_ = State::kEscape;
        } else {
          FlushSurrogate(&out);
          if (c == '"') {
            state_ = State::kDone;
          } else {
            out += c;
          }
        }
        break;
      case State::kEscape: TakeEscape(c, &out); break;
      case State::kUnicode: TakeUnicode(c, &out); break;
      case State::kDone: return out;
      case State::kPassThrough: return out += arguments.substr(i);
    }
  }
  return out;
}

std::string CustomInput::Finish() {
  std::string out;
  if (state_ == State::kPrefix) out = std::move(prefix_);
  FlushSurrogate(&out);
  state_ = State::kDone;
  return out;
}

void CustomInput::TakePrefix(char c, std::string* out) {
  prefix_ += c;
  if (in_piece_ == 0 && IsBlank(c)) return;
  const std::string_view piece = kShape[matched_];
  if (c != piece[in_piece_]) {
    state_ = State::kPassThrough;
    *out += prefix_;
    return;
  }
  if (++in_piece_ < piece.size()) return;
  in_piece_ = 0;
  if (++matched_ == kShape.size()) state_ = State::kString;
}

void CustomInput::TakeEscape(char c, std::string* out) {
  if (c == 'u') {
    state_ = State::kUnicode;
    unit_ = 0;
    digits_ = 0;
    return;
  }
  FlushSurrogate(out);
  state_ = State::kString;
  constexpr std::string_view kLetters = "bfnrt";
  constexpr std::string_view kMeanings = "\b\f\n\r\t";
  const size_t at = kLetters.find(c);
  *out += at == std::string_view::npos ? c : kMeanings[at];
}

void CustomInput::TakeUnicode(char c, std::string* out) {
  const uint32_t digit = c >= '0' && c <= '9' ? static_cast<uint32_t>(c - '0')
                                              : static_cast<uint32_t>((c | 0x20) - 'a' + 10) & 15;
  unit_ = unit_ << 4 | digit;
  if (++digits_ < 4) return;
  state_ = State::kString;
  if (unit_ >= 0xDC00 && unit_ < 0xE000 && high_ != 0) {
    AppendUtf8(0x10000 + ((high_ - 0xD800) << 10) + (unit_ - 0xDC00), out);
    high_ = 0;
    return;
  }
  FlushSurrogate(out);
  if (unit_ >= 0xD800 && unit_ < 0xDC00) {
    high_ = unit_;
  } else {
    AppendUtf8(unit_ >= 0xDC00 && unit_ < 0xE000 ? 0xFFFD : unit_, out);
  }
}

void CustomInput::FlushSurrogate(std::string* out) {
  if (high_ != 0) AppendUtf8(0xFFFD, out);
  high_ = 0;
}

}  // namespace deepinfer::recipe
