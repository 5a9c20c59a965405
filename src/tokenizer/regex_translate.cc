// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/regex_translate.h"

#include <optional>

#include "core/utf8.h"
#include "tokenizer/unicode_classes.h"

namespace deepinfer {
namespace {

void AppendRanges(const CodePointSet& set, std::string* out) {
  for (const auto& [first, last] : set) {
    fmt::format_to(std::back_inserter(*out), "\\x{{{:x}}}", first);
    if (last != first) fmt::format_to(std::back_inserter(*out), "-\\x{{{:x}}}", last);
  }
}

class Translator {
 public:
  explicit Translator(std::string_view pattern) : pattern_(pattern) {}

  Result<std::string> Run() {
    if (FindInvalidUtf8(pattern_) != std::string_view::npos) return Error(Code::kDataLoss, "pattern is no UTF-8");
    while (at_ < pattern_.size()) DI_RETURN_IF_ERROR(Step());
    if (in_class_) return Error(Code::kDataLoss, "pattern: the class at byte {} has no end", class_start_);
    return std::move(out_);
  }

 private:
  Status Step() {
    const char c = pattern_[at_];
    if (c == '\\') return Escape();
    if (in_class_) return InClass(c);
    if (c == '[') {
      OpenClass();
    } else if (c == '(' && Rest().starts_with("(?")) {
      return Group();
    } else if (c == '}' && Rest().starts_with("}+")) {
      return Refuse("}+");  // possessive in PCRE2, a repeated repeat in Oniguruma
    } else {
      out_ += c;
      ++at_;
    }
    return Status();
  }

  // The part of a group's beginning that decides its kind.
  Status Group() {
    for (const std::string_view known : {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:"}) {
      if (Rest().starts_with(known)) {
        out_ += known;
        at_ += known.size();
        return Status();
      }
    }
    return Refuse(Rest().substr(0, 4));
  }

  void OpenClass() {
    in_class_ = true;
    class_start_ = at_++;
    out_ += '[';
    if (Rest().starts_with('^')) {
      out_ += '^';
      ++at_;
    }
  }

  Status InClass(char c) {
    if (c == '[') return Refuse("[ inside a class");
    if (Rest().starts_with("&&")) return Refuse("&&");
    if (c == ']') {
      if (out_.back() == '[' || (out_.back() == '^' && at_ == class_start_ + 2)) return Refuse("an empty class");
      in_class_ = false;
    }
    out_ += c;
    ++at_;
    return Status();
  }

  Status Escape() {
    if (at_ + 1 >= pattern_.size()) return Refuse("\\ at the end");
    const char kind = pattern_[at_ + 1];
    switch (kind) {
      case 'p':
      case 'P':
        return Property(kind == 'P');
      case 's':
      case 'S':
        return Set(WhiteSpaceSet(), kind == 'S', 2);
      case 'd':
      case 'D':
        return Set(*CategorySet("Nd"), kind == 'D', 2);
      case 'r':
      case 'n':
      case 't':
      case 'f':
        break;
      default: {
        // Escaped punctuation means itself; other letters and digits differ between the engines.
        const auto byte = static_cast<unsigned char>(kind);
        const bool punctuation = byte > 0x20 && byte < 0x7F && !std::isalnum(byte);
        if (!punctuation) return Refuse(Rest().substr(0, 2));
      }
    }
    out_.append(Rest().substr(0, 2));
    at_ += 2;
    return Status();
  }

  // \p{Name}, \p{^Name}, \P{Name}
  Status Property(bool negated) {
    const size_t close = pattern_.find('}', at_);
    if (at_ + 2 >= pattern_.size() || pattern_[at_ + 2] != '{' || close == std::string_view::npos) {
      return Refuse(Rest().substr(0, 3));
    }
    std::string_view name = pattern_.substr(at_ + 3, close - at_ - 3);
    if (name.starts_with('^')) {
      negated = !negated;
      name.remove_prefix(1);
    }
    const std::optional<CodePointSet> set = CategorySet(name);
    if (!set.has_value()) return Refuse(pattern_.substr(at_, close + 1 - at_));
    return Set(*set, negated, close + 1 - at_);
  }

  // Writes `set` for the next `size` bytes of the pattern.
  Status Set(const CodePointSet& set, bool negated, size_t size) {
    if (in_class_) {
      // "a-\s": a range without an end.
      if (out_.ends_with('-') && !out_.ends_with("\\-")) return Refuse("a class as the end of a range");
      AppendRanges(negated ? Complement(set) : set, &out_);
    } else {
      out_ += negated ? "[^" : "[";
      AppendRanges(set, &out_);
      out_ += ']';
    }
    at_ += size;
    return Status();
  }

  std::string_view Rest() const { return pattern_.substr(at_); }
  Status Refuse(std::string_view what) const {
    return Error(Code::kUnimplemented, "pattern: {} at byte {} is not supported", what, at_);
  }

  std::string_view pattern_;
  size_t at_ = 0;
  bool in_class_ = false;
  size_t class_start_ = 0;
  std::string out_;
};

}  // namespace

Result<std::string> TranslateRegex(std::string_view pattern) { return Translator(pattern).Run(); }

}  // namespace deepinfer
