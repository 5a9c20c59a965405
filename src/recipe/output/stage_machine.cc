// SPDX-License-Identifier: Apache-2.0
#include "recipe/output/stage_machine.h"

#include <algorithm>

#include "core/check.h"

namespace deepinfer::recipe {
namespace {

std::vector<Symbol> ToSymbols(const Pattern& pattern, bool ids) {
  std::vector<Symbol> symbols;
  const std::string_view text = pattern.text;
  for (size_t i = 0; i < text.size();) {
    if (ids && !pattern.literal && text.substr(i).starts_with(kThinkEndSpelling)) {
      symbols.push_back(kThinkEndSymbol);
      i += kThinkEndSpelling.size();
    } else if (ids && !pattern.literal && text.substr(i).starts_with(kDsmlSpelling)) {
      symbols.push_back(kDsmlSymbol);
      i += kDsmlSpelling.size();
    } else {
      symbols.push_back(static_cast<unsigned char>(text[i++]));
    }
  }
  return symbols;
}

std::vector<uint32_t> Borders(const std::vector<Symbol>& symbols) {
  std::vector<uint32_t> border(symbols.size() + 1, 0);
  uint32_t length = 0;
  for (size_t i = 1; i < symbols.size(); ++i) {
    while (length > 0 && symbols[i] != symbols[length]) length = border[length];
    if (symbols[i] == symbols[length]) ++length;
    border[i + 1] = length;
  }
  return border;
}

}  // namespace

PatternSet::PatternSet(const std::vector<Pattern>& patterns, bool ids) {
  for (const Pattern& pattern : patterns) {
    DI_CHECK(!pattern.text.empty());
    Compiled compiled;
    compiled.symbols = ToSymbols(pattern, ids);
    compiled.fallback = Borders(compiled.symbols);
    compiled.action = pattern.action;
    compiled.newlines = pattern.newlines;
    // Advance() restarts a pattern with leading line feeds at its first symbol only; that is KMP where the first
    // symbol, or a line feed, is nowhere else in it.
    const auto rest = compiled.symbols.begin() + 1;
    DI_CHECK(!pattern.newlines || std::none_of(rest, compiled.symbols.end(), [&](Symbol s) {
      return s == compiled.symbols[0] || s == '\n';
    }));
    starts_[compiled.symbols[0]] = true;
    if (pattern.newlines) starts_['\n'] = true;
    patterns_.push_back(std::move(compiled));
  }
}

void StageMachine::Enter(const Stage& stage) {
  stage_ = &stage;
  set_ = ids_ ? &stage.ids : &stage.text;
  ResetProgress();
}

void StageMachine::ResetProgress() { progress_.assign(set_->patterns_.size(), Progress()); }

void StageMachine::SetInput(bool ids) {
  if (ids == ids_) return;
  ids_ = ids;
  set_ = ids ? &stage_->ids : &stage_->text;
  ResetProgress();
  const std::vector<Symbol> held(held_.begin() + static_cast<ptrdiff_t>(held_begin_), held_.end());
  held_.clear();
  held_begin_ = 0;
  for (const Symbol symbol : held) Step(symbol);
}

void StageMachine::Feed(std::string_view text) {
  size_t i = 0;
  while (i < text.size()) {
    if (leading_) {
      i = text.find_first_not_of('\n', i);
      if (i == std::string_view::npos) return;
      leading_ = false;
    }
    if (held_.empty()) {
      const bool* starts = set_->starts_.data();
      size_t end = i;
      while (end < text.size() && !starts[static_cast<unsigned char>(text[end])]) ++end;
      if (end > i) OnText(text.substr(i, end - i));
      i = end;
      if (i == text.size()) return;
    }
    Step(static_cast<unsigned char>(text[i++]));
  }
}

void StageMachine::FeedControl(Symbol symbol, std::string_view spelling) {
  leading_ = false;
  if (symbol != kOpaqueSymbol) {
    Step(symbol);
    return;
  }
  Flush();
  OnText(spelling);
}

void StageMachine::Flush() {
  Release(held_.size() - held_begin_);
  ResetProgress();
}

// Feeds one symbol to one pattern; returns how many symbols back its partial match begins.
size_t StageMachine::Advance(const PatternSet::Compiled& pattern, Symbol symbol, Progress* progress) const {
  if (symbol == pattern.symbols[progress->matched]) {
    ++progress->matched;
  } else if (pattern.newlines) {
    if (symbol == '\n') {
      progress->newlines = progress->matched == 0 ? progress->newlines + 1 : 1;
      progress->matched = 0;
    } else {
      progress->newlines = 0;
      progress->matched = symbol == pattern.symbols[0] ? 1 : 0;
    }
  } else {
    while (progress->matched > 0 && symbol != pattern.symbols[progress->matched]) {
      progress->matched = pattern.fallback[progress->matched];
    }
    if (symbol == pattern.symbols[progress->matched]) ++progress->matched;
  }
  return progress->newlines + progress->matched;
}

void StageMachine::Step(Symbol symbol) {
  held_.push_back(symbol);
  size_t hold = 0;
  for (size_t i = 0; i < progress_.size(); ++i) {
    const PatternSet::Compiled& pattern = set_->patterns_[i];
    hold = std::max(hold, Advance(pattern, symbol, &progress_[i]));
    if (progress_[i].matched == pattern.symbols.size()) {
      Complete(i);
      return;
    }
  }
  if (hold > kHeldMax) {
    Flush();
    return;
  }
  Release(held_.size() - held_begin_ - hold);
}

void StageMachine::Complete(size_t index) {
  const size_t length = progress_[index].newlines + progress_[index].matched;
  const int action = set_->patterns_[index].action;
  Release(held_.size() - held_begin_ - length);
  std::string matched = std::move(scratch_);
  matched.clear();
  for (size_t i = held_begin_; i < held_.size(); ++i) AppendSpelling(held_[i], &matched);
  held_.clear();
  held_begin_ = 0;
  ResetProgress();
  if (!OnMatch(action, matched)) OnText(matched);
  scratch_ = std::move(matched);
}

void StageMachine::Release(size_t count) {
  if (count > 0) {
    std::string text = std::move(scratch_);
    text.clear();
    for (size_t i = held_begin_; i < held_begin_ + count; ++i) AppendSpelling(held_[i], &text);
    OnText(text);
    scratch_ = std::move(text);
    held_begin_ += count;
  }
  if (held_begin_ == held_.size()) {
    held_.clear();
    held_begin_ = 0;
  } else if (held_begin_ > 4096 && held_begin_ > held_.size() / 2) {
    held_.erase(held_.begin(), held_.begin() + static_cast<ptrdiff_t>(held_begin_));
    held_begin_ = 0;
  }
}

void StageMachine::AppendSpelling(Symbol symbol, std::string* out) {
  if (symbol == kThinkEndSymbol) {
    *out += kThinkEndSpelling;
  } else if (symbol == kDsmlSymbol) {
    *out += kDsmlSpelling;
  } else {
    *out += static_cast<char>(symbol);
  }
}

}  // namespace deepinfer::recipe
