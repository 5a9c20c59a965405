// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/compressed_vocab.h"

#include <unicode/locid.h>
#include <unicode/normalizer2.h>
#include <unicode/uchar.h>
#include <unicode/unistr.h>

#include <string>
#include <unordered_map>

namespace deepinfer {
namespace {

constexpr char16_t kKeptSpace = 0xE000;  // stands for a text that is one space while blanks are trimmed

class KeyMaker {
 public:
  static Result<KeyMaker> Make() {
    UErrorCode error = U_ZERO_ERROR;
    KeyMaker maker;
    maker.nfkc_ = icu::Normalizer2::getNFKCInstance(error);
    maker.nfd_ = icu::Normalizer2::getNFDInstance(error);
    if (U_FAILURE(error)) return Error(Code::kInternal, "ICU normalisation: {}", u_errorName(error));
    return maker;
  }

  Result<std::string> Key(std::string_view text) const {
    UErrorCode error = U_ZERO_ERROR;
    const icu::UnicodeString compatible =
        nfkc_->normalize(icu::UnicodeString::fromUTF8(icu::StringPiece(text.data(), text.size())), error);
    const icu::UnicodeString decomposed = nfd_->normalize(compatible, error);
    if (U_FAILURE(error)) return Error(Code::kInternal, "ICU normalisation: {}", u_errorName(error));
    icu::UnicodeString key = Fold(decomposed);
    if (key == icu::UnicodeString(u' ')) key = icu::UnicodeString(kKeptSpace);
    Trim(&key);
    key.findAndReplace(icu::UnicodeString(kKeptSpace), icu::UnicodeString(u' '));
    std::string utf8;
    key.toUTF8String(utf8);
    return utf8;
  }

 private:
  // Marks left out, the rest in lower case, runs of blanks as one space.
  static icu::UnicodeString Fold(const icu::UnicodeString& text) {
    icu::UnicodeString folded;
    bool after_blank = false;
    for (int32_t i = 0; i < text.length(); i = text.moveIndex32(i, 1)) {
      const UChar32 c = text.char32At(i);
      if (U_GET_GC_MASK(c) & U_GC_M_MASK) continue;
      const bool blank = c == ' ' || c == '\t' || c == '\r' || c == '\n';
      if (!blank) {
        folded.append(LowerCase(c));
      } else if (!after_blank) {
        folded.append(u' ');
      }
      after_blank = blank;
    }
    return folded;
  }

  // The full mapping, of one character by itself.
  static icu::UnicodeString LowerCase(UChar32 c) { return icu::UnicodeString(c).toLower(icu::Locale::getRoot()); }

  static void Trim(icu::UnicodeString* text) {
    int32_t begin = 0;
    int32_t end = text->length();
    while (begin < end && u_isUWhiteSpace(text->char32At(begin))) begin = text->moveIndex32(begin, 1);
    while (begin < end && u_isUWhiteSpace(text->char32At(end - 1))) --end;
    *text = icu::UnicodeString(*text, begin, end - begin);
  }

  const icu::Normalizer2* nfkc_ = nullptr;
  const icu::Normalizer2* nfd_ = nullptr;
};

}  // namespace

Result<CompressedVocab> CompressVocab(const Tokenizer& tokenizer) {
  DI_ASSIGN_OR_RETURN(const KeyMaker maker, KeyMaker::Make());
  CompressedVocab vocab;
  std::unordered_map<std::string, int32_t> known;
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
    std::string key = tokenizer.Decode(std::vector<TokenId>{id});
    if (key.find("\xEF\xBF\xBD") != std::string::npos) {
      key = tokenizer.IdToToken(id).value_or("");
    } else {
      DI_ASSIGN_OR_RETURN(std::string normalised, maker.Key(key));
      if (!normalised.empty()) key = std::move(normalised);
    }
    const auto [it, is_new] = known.emplace(std::move(key), vocab.size);
    if (is_new) ++vocab.size;
    vocab.ids.push_back(it->second);
  }
  return vocab;
}

}  // namespace deepinfer
