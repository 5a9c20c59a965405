// SPDX-License-Identifier: Apache-2.0
// Random regexes and grammars: as text in each notation that the library reads, and as productions for the slow matcher.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "slow_matcher.h"

namespace deepinfer::grammar {

enum class Notation { kRegex, kGbnf, kLark };

struct RandomNode {
  enum Kind { kLiteral, kClass, kSequence, kAlternatives, kRepeat, kRule } kind = kLiteral;
  std::string text;      // kLiteral; kClass: its members
  bool negated = false;  // kClass
  size_t rule = 0;
  unsigned min = 0, max = 0;  // kRepeat
  bool open = false;          // kRepeat: no maximum
  std::vector<RandomNode> children;
};

class RandomGrammar {
 public:
  // Rules refer to each other only where the notation has rules.
  RandomGrammar(std::mt19937* random, Notation notation);
  std::string Text() const;
  SlowGrammar Slow() const;

 private:
  RandomNode Make(int depth);
  size_t Below(size_t n) { return (*random_)() % n; }
  std::string Write(const RandomNode& node) const;
  std::string WriteRepeat(const RandomNode& node) const;

  std::mt19937* random_;
  Notation notation_;
  std::vector<RandomNode> rules_;
};

}  // namespace deepinfer::grammar
