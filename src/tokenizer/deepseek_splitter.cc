// SPDX-License-Identifier: Apache-2.0
// The published patterns are three steps, each applied inside the pieces of the one before:
//
//   1. \p{N}{1,3}
//   2. [一-龥぀-ゟ゠-ヿ]+
//   3. [ASCII punctuation][A-Za-z]+ | [^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+ | ?[\p{P}\p{S}]+[\r\n]* | \s*[\r\n]+
//      | \s+(?!\S) | \s+
//
// So a run of numbers and a run in the CJK range are walls for step 3: it sees the text end there. Step 3 looks
// ahead only, hence where one piece ends the next is found without knowing what came before.
#include "tokenizer/deepseek_splitter.h"

#include <bit>
#include <cstring>

#include "core/utf8.h"
#include "tokenizer/char_class.h"

namespace deepinfer {
namespace {

constexpr size_t kPiecesPerCall = 256;

constexpr std::string_view kPublished[] = {
    R"(\p{N}{1,3})",
    "[一-龥\u3040-ゟ゠-ヿ]+",
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
    "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
};

// The pattern with \r, \n and \" as the characters themselves.
std::string Unescape(const std::string& pattern) {
  std::string out;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char next = i + 1 < pattern.size() ? pattern[i + 1] : '\0';
    if (pattern[i] != '\\') {
      out += pattern[i];
    } else if (next == 'r' || next == 'n' || next == '"') {
      out += next == 'r' ? '\r' : next == 'n' ? '\n' : '"';
      ++i;
    } else {
      out.append(pattern, i, 2);
      ++i;
    }
  }
  return out;
}

// How many of the 8 bytes at `p`, from the first on, are ASCII letters.
int AsciiLetters(const char* p) {
  static_assert(std::endian::native == std::endian::little);
  constexpr uint64_t kOnes = 0x0101010101010101u;
  uint64_t word;
  std::memcpy(&word, p, 8);
  const uint64_t lower = (word | 0x20 * kOnes) & 0x7F * kOnes;
  // Bit 7 of each byte: >= 'a', > 'z'. No byte carries into its neighbour.
  const uint64_t from_a = lower + (0x80 - 'a') * kOnes;
  const uint64_t past_z = lower + (0x7F - 'z') * kOnes;
  const uint64_t others = (~from_a | past_z | word) & 0x80 * kOnes;
  return std::countr_zero(others) >> 3;
}

// Finds where the piece that begins at a place ends.
class Scanner {
 public:
  Scanner(const char* end, const CharClassTable& table) : end_(end), table_(table) {}

  // REQUIRES: p < end.
  const char* PieceEnd(const char* p) const {
    if (end_ - p > 17) [[likely]] {
      // Most pieces: up to 15 ASCII letters, perhaps with a blank before them.
      const char* letters = p + (*p == ' ');
      int count = AsciiLetters(letters);
      if (count == 8) count += AsciiLetters(letters + 8);
      if (count > 0 && count < 16 && static_cast<uint8_t>(letters[count]) < 0x80) return letters + count;
    }
    return AnyPieceEnd(p);
  }

  // The class of the character at *p, which is passed. REQUIRES: *p < end.
  CharClass Next(const char** p) const {
    const auto* bytes = reinterpret_cast<const uint8_t*>(*p);
    const uint32_t lead = bytes[0];
    if (lead < 0x80) {
      *p += 1;
      return table_.OfAscii(static_cast<uint8_t>(lead));
    }
    if (lead < 0xE0) {
      *p += 2;
      return table_.Of((lead & 0x1F) << 6 | (bytes[1] & 0x3F));
    }
    if (lead < 0xF0) {
      *p += 3;
      return table_.Of((lead & 0x0F) << 12 | (bytes[1] & 0x3F) << 6 | (bytes[2] & 0x3F));
    }
    *p += 4;
    return table_.Of((lead & 0x07) << 18 | (bytes[1] & 0x3F) << 12 | (bytes[2] & 0x3F) << 6 | (bytes[3] & 0x3F));
  }

 private:
  const char* AnyPieceEnd(const char* p) const {
    const char* next = p;
    switch (Next(&next)) {
      case CharClass::kAsciiLetter:
      case CharClass::kLetter:
        return LettersEnd(next);
      case CharClass::kAsciiPunct:
        return Peek(next) == CharClass::kAsciiLetter ? AsciiLettersEnd(next) : PunctEnd(next);
      case CharClass::kPunct:
        return PunctEnd(next);
      case CharClass::kWhite:
        if (IsLetter(Peek(next))) return LettersEnd(next);
        return WhiteEnd(p);
      case CharClass::kNewline:
        return WhiteEnd(p);
      case CharClass::kNumber:
        return NumberEnd(next);
      case CharClass::kOther:
        return OtherEnd(next, CharClass::kOther);
      case CharClass::kCjkLetter:
        return CjkLettersEnd(next);
      case CharClass::kCjkPunct:
        return RunEnd(next, CharClass::kCjkPunct);
      case CharClass::kCjkOther:
        return OtherEnd(next, CharClass::kCjkOther);
    }
    __builtin_unreachable();
  }

  static bool IsLetter(CharClass c) { return c == CharClass::kAsciiLetter || c == CharClass::kLetter; }
  static bool IsPunct(CharClass c) { return c == CharClass::kAsciiPunct || c == CharClass::kPunct; }
  static bool IsWhite(CharClass c) { return c == CharClass::kWhite || c == CharClass::kNewline; }

  // The end of the text is a wall like a number.
  CharClass Peek(const char* p) const { return p == end_ ? CharClass::kNumber : Next(&p); }
  static bool IsWall(CharClass c) { return c == CharClass::kNumber || c >= CharClass::kCjkLetter; }

  const char* AsciiLettersEnd(const char* p) const {
    while (end_ - p >= 8) {
      const int count = AsciiLetters(p);
      p += count;
      if (count < 8) return p;
    }
    while (p != end_ && static_cast<uint8_t>(*p) < 0x80 &&
           table_.OfAscii(static_cast<uint8_t>(*p)) == CharClass::kAsciiLetter) {
      ++p;
    }
    return p;
  }

  const char* LettersEnd(const char* p) const {
    while (true) {
      p = AsciiLettersEnd(p);
      if (p == end_ || static_cast<uint8_t>(*p) < 0x80) return p;
      const char* next = p;
      if (Next(&next) != CharClass::kLetter) return p;
      p = next;
    }
  }

  // `p`: behind the first of them.
  const char* PunctEnd(const char* p) const {
    while (p != end_) {
      const char* next = p;
      if (!IsPunct(Next(&next))) break;
      p = next;
    }
    while (p != end_ && (*p == '\r' || *p == '\n')) ++p;
    return p;
  }

  // From white space at `p` that no letter follows at once.
  const char* WhiteEnd(const char* p) const {
    const char* last = p;                // the last white character
    const char* after_newline = nullptr;
    const char* q = p;
    CharClass c = CharClass::kWhite;
    while (q != end_) {
      const char* next = q;
      c = Next(&next);
      if (!IsWhite(c)) break;
      if (c == CharClass::kNewline) after_newline = next;
      last = q;
      q = next;
    }
    if (after_newline != nullptr) return after_newline;  // \s*[\r\n]+
    if (q == end_ || IsWall(c)) return q;                // \s+(?!\S)
    if (last != p) return last;                          // the same, one character short
    if (*p == ' ' && IsPunct(c)) return PunctEnd(q);     // ?[\p{P}\p{S}]+[\r\n]*
    return q;                                            // \s+
  }

  // `p`: behind the first of at most three.
  const char* NumberEnd(const char* p) const {
    for (int i = 0; i < 2 && p != end_; ++i) {
      const char* next = p;
      if (Next(&next) != CharClass::kNumber) break;
      p = next;
    }
    return p;
  }

  const char* CjkLettersEnd(const char* p) const {
    while (p != end_) {
      // U+5000 to U+8FFF are all of them ideographs.
      const auto lead = static_cast<uint8_t>(*p);
      const char* next = p + 3;
      if ((lead < 0xE5 || lead > 0xE8) && Next(&(next = p)) != CharClass::kCjkLetter) break;
      p = next;
    }
    return p;
  }

  const char* RunEnd(const char* p, CharClass of) const {
    while (p != end_) {
      const char* next = p;
      if (Next(&next) != of) break;
      p = next;
    }
    return p;
  }

  // `p`: behind a character that no pattern matches by itself. With letters behind it, it belongs to them; else all
  // of its kind up to the one that does are a piece.
  const char* OtherEnd(const char* p, CharClass of) const {
    const auto is_letter = [&](CharClass c) {
      return of == CharClass::kOther ? IsLetter(c) : c == CharClass::kCjkLetter;
    };
    if (is_letter(Peek(p))) return of == CharClass::kOther ? LettersEnd(p) : CjkLettersEnd(p);
    while (p != end_) {
      const char* next = p;
      if (Next(&next) != of || is_letter(Peek(next))) break;
      p = next;
    }
    return p;
  }

  const char* end_;
  const CharClassTable& table_;
};

// Whether there is a border between characters of these classes whatever surrounds them.
bool AlwaysBorder(CharClass before, CharClass after) {
  using enum CharClass;
  if (before == kNumber || after == kNumber) return before != after;
  const bool cjk_before = before >= kCjkLetter;
  const bool cjk_after = after >= kCjkLetter;
  if (cjk_before != cjk_after) return true;
  if (cjk_before) return before != after && !(before == kCjkOther && after == kCjkLetter);
  switch (before) {
    case kAsciiLetter:
    case kLetter:
      return after != kAsciiLetter && after != kLetter;
    case kAsciiPunct:
      return after == kLetter || after == kWhite || after == kOther;
    case kPunct:
      return after == kAsciiLetter || after == kLetter || after == kWhite || after == kOther;
    case kNewline:
      return after != kNewline && after != kWhite;
    case kOther:
      return after != kAsciiLetter && after != kLetter && after != kOther;
    default:
      return false;
  }
}

class DeepSeekSplitter : public PreTokenizer {
 public:
  Status Split(std::string_view text, size_t* position, std::vector<uint32_t>* ends) const override {
    const Scanner scanner(text.data() + text.size(), table_);
    const char* const end = text.data() + text.size();
    const char* p = text.data() + *position;
    const size_t old_size = ends->size();
    ends->resize(old_size + kPiecesPerCall);
    uint32_t* out = ends->data() + old_size;
    size_t count = 0;
    while (p != end && count < kPiecesPerCall) {
      p = scanner.PieceEnd(p);
      out[count++] = static_cast<uint32_t>(p - text.data());
    }
    ends->resize(old_size + count);
    *position = p - text.data();
    return Status();
  }

  bool SafeCut(std::string_view text, size_t offset) const override {
    const Scanner scanner(text.data() + text.size(), table_);
    size_t start = offset - 1;
    while (start > 0 && (static_cast<uint8_t>(text[start]) & 0xC0) == 0x80) --start;
    const char* before = text.data() + start;
    const char* after = text.data() + offset;
    return AlwaysBorder(scanner.Next(&before), scanner.Next(&after));
  }

 private:
  const CharClassTable& table_ = CharClassTable::Get();
};

}  // namespace

bool IsDeepSeekPattern(const std::vector<std::string>& patterns) {
  if (patterns.size() != std::size(kPublished)) return false;
  for (size_t i = 0; i < patterns.size(); ++i) {
    if (Unescape(patterns[i]) != kPublished[i]) return false;
  }
  return true;
}

std::unique_ptr<PreTokenizer> MakeDeepSeekSplitter() { return std::make_unique<DeepSeekSplitter>(); }

}  // namespace deepinfer
