// SPDX-License-Identifier: Apache-2.0
#include "grammar/vocabulary.h"

#include <algorithm>

#include "core/utf8.h"
#include "grammar/any_text_mask.h"

namespace deepinfer::grammar {
namespace {

constexpr size_t kTokenBytesMax = 250;

// Characters in a text of plain characters only; 0 where there is anything else.
size_t PlainLength(const std::string& text, const std::vector<CodePointSet::Range>& plain) {
  size_t count = 0;
  for (size_t i = 0; i < text.size();) {
    const Utf8Char c = DecodeUtf8(std::string_view(text).substr(i));
    if (!c.valid) return 0;
    const auto it = std::upper_bound(plain.begin(), plain.end(), CodePointSet::Range{c.code_point, UINT32_MAX});
    if (it == plain.begin() || std::prev(it)->second < c.code_point) return 0;
    i += c.size;
    ++count;
  }
  return count;
}

uint8_t ClassesOf(const std::string& text, uint32_t* chars) {
  uint8_t classes = kAllTextClasses;
  *chars = 0;
  for (size_t i = 0; i < text.size() && classes != 0; ++*chars) {
    const Utf8Char c = DecodeUtf8(std::string_view(text).substr(i));
    classes &= c.valid && *chars < kRunCharsMax ? TextClassesOf(c.code_point) : 0;
    i += c.size;
  }
  return classes;
}

}  // namespace

std::string SpecialSpelling(uint32_t id) {
  return {static_cast<char>(0xFF), static_cast<char>(id >> 16), static_cast<char>(id >> 8), static_cast<char>(id)};
}

std::shared_ptr<const Vocabulary> Vocabulary::Create(std::span<const std::string> token_bytes,
                                                     std::span<const uint32_t> special, std::span<const uint32_t> stop) {
  return std::make_shared<const VocabularyImpl>(token_bytes, special, stop);
}

VocabularyImpl::VocabularyImpl(std::span<const std::string> token_bytes, std::span<const uint32_t> special,
                               std::span<const uint32_t> stop)
    : tokens_(token_bytes.begin(), token_bytes.end()), is_stop_(token_bytes.size(), false) {
  for (std::string& token : tokens_) {
    // 0xFE and 0xFF never occur in text; 0xFF begins the spelling of special ids.
    if (token.size() > kTokenBytesMax || token.find_first_of("\xFE\xFF") != std::string::npos) token.clear();
  }
  for (uint32_t id : special) {
    if (id < tokens_.size()) tokens_[id] = SpecialSpelling(id);
  }
  for (uint32_t id : stop) {
    if (id >= tokens_.size()) continue;
    tokens_[id].clear();
    is_stop_[id] = true;
    stop_ids_.push_back(id);
  }
  const std::vector<CodePointSet::Range> plain = PlainCharacters().Ranges();
  plain_.assign(kPlainCharsMax + 1, std::vector<uint32_t>(mask_words(), 0));
  std::vector<uint32_t> all, residual;
  std::vector<uint8_t> classes(tokens_.size(), 0);
  for (auto& masks : runs_) masks.fill(std::vector<uint32_t>(mask_words(), 0));
  for (uint32_t id = 0; id < tokens_.size(); ++id) {
    if (tokens_[id].empty()) continue;
    all.push_back(id);
    if (tokens_[id].size() > AnyTextMask::kCharsMax) long_tokens_.push_back(id);
    uint32_t chars = 0;
    classes[id] = ClassesOf(tokens_[id], &chars);
    for (size_t k = 0; k < runs_.size(); ++k) {
      if ((classes[id] & TextClasses()[k].bit) == 0) continue;
      for (uint32_t n = chars; n <= kRunCharsMax; ++n) SetBit(id, runs_[k][n].data());
    }
    const size_t length = PlainLength(tokens_[id], plain);
    if (length == 0 || length > kPlainCharsMax) {
      residual.push_back(id);
      continue;
    }
    for (size_t k = length; k <= kPlainCharsMax; ++k) SetBit(id, plain_[k].data());
  }
  std::stable_sort(long_tokens_.begin(), long_tokens_.end(), [&](uint32_t a, uint32_t b) { return tokens_[a].size() > tokens_[b].size(); });
  all_ = Build(all, classes);
  residual_ = Build(residual, classes);
  Budget budget;
  ExprPool pool(&budget);
  for (const Spelling spelling : {Spelling::kAny, Spelling::kUsual}) {
    Lexer lexer(&pool, &budget, spelling);
    any_text_[spelling == Spelling::kUsual] =
        std::make_shared<AnyTextMask>(BuildAnyTextMask(&lexer, *this));
  }
}

void VocabularyImpl::AddRuns(uint8_t classes, uint32_t chars, uint32_t* mask) const {
  for (size_t k = runs_.size(); k-- > 0;) {
    const TextClassInfo& info = TextClasses()[k];
    if ((classes & info.bit) == 0) continue;
    for (size_t word = 0; word < mask_words(); ++word) mask[word] |= runs_[k][chars][word];
    classes &= static_cast<uint8_t>(~info.contains);
  }
}

Trie VocabularyImpl::Build(const std::vector<uint32_t>& ids, const std::vector<uint8_t>& classes) const {
  std::vector<Trie::Entry> entries;
  for (uint32_t id : ids) entries.emplace_back(tokens_[id], id);
  return Trie::Build(std::move(entries), classes);
}

}  // namespace deepinfer::grammar
