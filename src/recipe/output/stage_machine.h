// SPDX-License-Identifier: Apache-2.0
// The engine under both parsing profiles: a stage is a list of patterns that are looked for side by side; the first
// to be complete wins (the earlier in the list on ties), and text that can no longer belong to a match goes to the
// stage's default action. The longest possible partial match is held back, so results do not depend on how the input
// is cut.
//
// Input is a row of symbols: bytes, and control tokens that arrived by id. A marker such as </think> is a pattern of
// bytes for text input and one symbol for ids, so ordinary tokens that spell a marker are never taken for it.
// Cost: bytes that cannot begin a match are skipped in one table scan. Not for concurrent use.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "recipe/output/output_vocabulary.h"

namespace deepinfer::recipe {

using Symbol = uint16_t;  // 0..255: a byte; above: a control token
inline constexpr Symbol kThinkEndSymbol = 256;
inline constexpr Symbol kDsmlSymbol = 257;
inline constexpr Symbol kOpaqueSymbol = 258;  // any other control token: no pattern holds it
inline constexpr size_t kNumSymbols = 259;

// A string to look for. In `text` the spellings of </think> and ｜DSML｜ stand for the markers unless it is `literal`.
struct Pattern {
  std::string text;
  int action = 0;
  bool newlines = false;  // line feeds before it, any number, belong to the match
  bool literal = false;   // text that a client gave (stop sequences): matches bytes alone
};

// The patterns of a stage, compiled for one kind of input.
class PatternSet {
 public:
  PatternSet(const std::vector<Pattern>& patterns, bool ids);

 private:
  friend class StageMachine;
  struct Compiled {
    std::vector<Symbol> symbols;
    std::vector<uint32_t> fallback;  // KMP: the longest proper border of each prefix
    int action = 0;
    bool newlines = false;
  };
  std::vector<Compiled> patterns_;
  std::array<bool, kNumSymbols> starts_{};  // symbols that can begin a match
};

struct Stage {
  explicit Stage(const std::vector<Pattern>& patterns) : text(patterns, false), ids(patterns, true) {}
  PatternSet text;
  PatternSet ids;
};

class StageMachine {
 public:
  virtual ~StageMachine() = default;
  StageMachine(const StageMachine&) = delete;
  StageMachine& operator=(const StageMachine&) = delete;

  // Says whether what follows comes as text or as ids. What is held back is looked at again in the new light.
  void SetInput(bool ids);
  void Feed(std::string_view text);
  // A control token; `spelling` is what it looks like as text.
  void FeedControl(Symbol symbol, std::string_view spelling);
  // Gives what is held back to the default action.
  void Flush();
  bool HoldsBack() const { return !held_.empty(); }

 protected:
  // A run of more line feeds than this before a marker is text.
  static constexpr size_t kHeldMax = size_t{1} << 16;

  StageMachine() = default;
  // Must be called before any input, and to change the stage: from OnMatch alone. `stage` must outlive the machine.
  void Enter(const Stage& stage);

  // The default action of the current stage.
  virtual void OnText(std::string_view text) = 0;
  // A pattern is complete; `matched` is its text, line feeds included. False: it counts as text after all.
  virtual bool OnMatch(int action, std::string_view matched) = 0;

  // Line feeds that come next are dropped, unseen by any pattern, up to the first other symbol.
  bool leading_ = false;

 private:
  struct Progress {
    uint32_t matched = 0;   // symbols of the pattern
    size_t newlines = 0;    // before them
  };

  void Step(Symbol symbol);
  size_t Advance(const PatternSet::Compiled& pattern, Symbol symbol, Progress* progress) const;
  void Release(size_t count);
  void ResetProgress();
  void Complete(size_t index);
  static void AppendSpelling(Symbol symbol, std::string* out);

  const Stage* stage_ = nullptr;
  const PatternSet* set_ = nullptr;
  bool ids_ = false;
  std::vector<Progress> progress_;
  std::vector<Symbol> held_;  // from held_begin_ on
  size_t held_begin_ = 0;
  std::string scratch_;
};

}  // namespace deepinfer::recipe
