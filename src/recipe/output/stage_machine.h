// SPDX-License-Identifier: Apache-2.0
// The engine under both parsing profiles: a stage is a list of patterns that are looked for side by side; the first
// to be complete wins (the earlier in the list on ties), and text that can no longer belong to a match goes to the
// stage's default action. The longest possible partial match is held back, so results do not depend on how the input
// is cut.
//
// Input is a row of symbols: bytes, and control tokens that arrived by id. A marker such as </think> is a pattern of
// bytes for text input and one symbol for ids, so ordinary tokens that spell a marker are never taken for it.
// Cost: bytes that cannot begin a match are skipped in one table scan, others take a step of an automaton.
// Not for concurrent use.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
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

// The patterns of a stage, compiled for one kind of input: an Aho-Corasick automaton whose state also knows how many
// line feeds stand right before the partial match.
class PatternSet {
 public:
  PatternSet(const std::vector<Pattern>& patterns, bool ids);

 private:
  friend class StageMachine;
  // How many line feeds end the part of a node's string that a step to a shorter one drops.
  struct Dropped {
    uint32_t newlines = 0;
    bool all = true;  // it is nothing else: what stood before the node's string still counts
    size_t Before(size_t newlines_before) const { return all ? newlines_before + newlines : newlines; }
  };
  struct Node {
    uint32_t depth = 0;
    uint32_t fallback = 0;  // the longest other node whose string ends this one's
    Dropped dropped;        // on the way there
    bool newlines = false;  // line feeds before the string may belong to a match
    int32_t match = -1;     // the pattern that is complete here, the first in the list
    Dropped match_dropped;  // what stands before it
    std::vector<std::pair<Symbol, uint32_t>> children;
  };
  struct Compiled {
    uint32_t size = 0;
    int action = 0;
    bool newlines = false;
  };

  uint32_t Insert(const std::vector<Symbol>& symbols, bool newlines);
  void Link(const std::vector<std::vector<Symbol>>& texts, const std::vector<std::pair<size_t, size_t>>& places);
  uint32_t Child(uint32_t node, Symbol symbol) const;  // 0: none

  std::vector<Compiled> patterns_;
  std::vector<Node> nodes_;  // the first is the root
  std::array<bool, kNumSymbols> starts_{};  // symbols that lead away from the root
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
  // True when a pattern is complete.
  bool Step(Symbol symbol);
  size_t Hold() const;
  void Complete(std::string_view text, size_t end, size_t* begin);
  void Release(size_t count, std::string_view text, size_t* begin);
  static void AppendSpelling(Symbol symbol, std::string* out);

  const Stage* stage_ = nullptr;
  const PatternSet* set_ = nullptr;
  bool ids_ = false;
  uint32_t node_ = 0;
  size_t newlines_ = 0;       // before the node's string
  std::vector<Symbol> held_;  // of earlier input
  std::string scratch_;
};

}  // namespace deepinfer::recipe
