// SPDX-License-Identifier: Apache-2.0
#include "random_grammar.h"

#include <array>

namespace deepinfer::grammar {
namespace {

std::bitset<256> ByteRange(size_t first, size_t last) {
  std::bitset<256> set;
  for (size_t i = first; i <= last; ++i) set.set(i);
  return set;
}

// Builds productions; every inner node becomes a rule of its own.
class Lowering {
 public:
  explicit Lowering(SlowGrammar* out) : out_(out) {}

  SlowSymbol Lower(const RandomNode& node) {
    switch (node.kind) {
      case RandomNode::kRule: return Rule(node.rule);
      case RandomNode::kLiteral: return Literal(node.text);
      case RandomNode::kClass: return Class(node);
      case RandomNode::kRepeat: return Repeat(node);
      default: break;
    }
    const size_t rule = Add();
    SlowGrammar::Production sequence;
    for (const RandomNode& child : node.children) {
      const SlowSymbol symbol = Lower(child);
      if (node.kind == RandomNode::kAlternatives) {
        out_->rules[rule].push_back({symbol});
      } else {
        sequence.push_back(symbol);
      }
    }
    if (node.kind == RandomNode::kSequence) out_->rules[rule].push_back(sequence);
    return Rule(rule);
  }

 private:
  size_t Add() {
    out_->rules.emplace_back();
    return out_->rules.size() - 1;
  }
  static SlowSymbol Rule(size_t rule) { return {true, rule, {}}; }
  static SlowSymbol Bytes(const std::bitset<256>& bytes) { return {false, 0, bytes}; }

  SlowSymbol Literal(const std::string& text) {
    const size_t rule = Add();
    SlowGrammar::Production production;
    for (char c : text) production.push_back(Bytes(ByteRange(static_cast<uint8_t>(c), static_cast<uint8_t>(c))));
    out_->rules[rule].push_back(production);
    return Rule(rule);
  }

  // Members are ASCII; a negated class has all other characters, in UTF-8 as RFC 3629 lists its forms.
  SlowSymbol Class(const RandomNode& node) {
    std::bitset<256> members;
    for (char c : node.text) members.set(static_cast<uint8_t>(c));
    if (!node.negated) return Bytes(members);
    const size_t rule = Add();
    const SlowSymbol tail = Bytes(ByteRange(0x80, 0xBF));
    const auto lead = [](size_t first, size_t last) { return Bytes(ByteRange(first, last)); };
    out_->rules[rule] = {{Bytes(ByteRange(0, 0x7F) & ~members)},
                         {lead(0xC2, 0xDF), tail},
                         {lead(0xE0, 0xE0), lead(0xA0, 0xBF), tail},
                         {lead(0xE1, 0xEC), tail, tail},
                         {lead(0xED, 0xED), lead(0x80, 0x9F), tail},
                         {lead(0xEE, 0xEF), tail, tail},
                         {lead(0xF0, 0xF0), lead(0x90, 0xBF), tail, tail},
                         {lead(0xF1, 0xF3), tail, tail, tail},
                         {lead(0xF4, 0xF4), lead(0x80, 0x8F), tail, tail}};
    return Rule(rule);
  }

  SlowSymbol Repeat(const RandomNode& node) {
    const SlowSymbol inner = Lower(node.children[0]);
    const size_t rule = Add();
    if (node.open) {
      const size_t star = Add();
      out_->rules[star] = {{}, {inner, Rule(star)}};
      SlowGrammar::Production production(node.min, inner);
      production.push_back(Rule(star));
      out_->rules[rule].push_back(production);
    } else {
      for (unsigned n = node.min; n <= node.max; ++n) out_->rules[rule].push_back(SlowGrammar::Production(n, inner));
    }
    return Rule(rule);
  }

  SlowGrammar* out_;
};

}  // namespace

RandomGrammar::RandomGrammar(std::mt19937* random, Notation notation) : random_(random), notation_(notation) {
  rules_.resize(notation == Notation::kRegex ? 1 : 1 + Below(4));
  for (RandomNode& rule : rules_) rule = Make(3);
}

RandomNode RandomGrammar::Make(int depth) {
  RandomNode node;
  const size_t dice = Below(depth == 0 ? 6 : 14);
  if (dice < 3) {
    node.kind = RandomNode::kLiteral;
    for (size_t n = 1 + Below(3); n > 0; --n) node.text += "ab"[Below(2)];
    if (Below(6) == 0) node.text += "\xC3\xA9";
  } else if (dice < 5) {
    node.kind = RandomNode::kClass;
    for (char c : std::string("abc <")) {
      if (Below(2) == 0) node.text += c;
    }
    if (node.text.empty()) node.text = "b";
    node.negated = Below(4) == 0;
  } else if (dice == 5) {
    node.kind = notation_ == Notation::kRegex ? RandomNode::kLiteral : RandomNode::kRule;
    node.text = "c";
    node.rule = Below(rules_.size());
  } else if (dice < 9) {
    node.kind = RandomNode::kSequence;
    for (size_t n = 2 + Below(2); n > 0; --n) node.children.push_back(Make(depth - 1));
  } else if (dice < 12) {
    node.kind = RandomNode::kAlternatives;
    for (size_t n = 2 + Below(2); n > 0; --n) node.children.push_back(Make(depth - 1));
  } else {
    node.kind = RandomNode::kRepeat;
    node.min = static_cast<unsigned>(Below(3));
    node.max = node.min + static_cast<unsigned>(Below(4));
    node.open = Below(2) == 0;
    node.children.push_back(Make(depth - 1));
  }
  return node;
}

SlowGrammar RandomGrammar::Slow() const {
  SlowGrammar slow;
  slow.rules.resize(rules_.size());
  Lowering lowering(&slow);
  for (size_t i = 0; i < rules_.size(); ++i) {
    const SlowSymbol body = lowering.Lower(rules_[i]);
    slow.rules[i].push_back({body});
  }
  return slow;
}

std::string RandomGrammar::WriteRepeat(const RandomNode& node) const {
  const std::string inner = "(" + Write(node.children[0]) + ")";
  if (notation_ == Notation::kLark && !node.open) {
    return inner + " ~ " + std::to_string(node.min) + ".." + std::to_string(node.max);
  }
  if (node.open && node.min == 0) return inner + "*";
  if (node.open && node.min == 1) return inner + "+";
  if (notation_ == Notation::kLark) return inner + " " + inner + "+";
  if (node.min == 0 && node.max == 1) return inner + "?";
  return inner + "{" + std::to_string(node.min) + "," + (node.open ? "" : std::to_string(node.max)) + "}";
}

std::string RandomGrammar::Write(const RandomNode& node) const {
  const bool regex = notation_ == Notation::kRegex;
  std::string out;
  switch (node.kind) {
    case RandomNode::kLiteral:
      return regex ? node.text : "\"" + node.text + "\"";
    case RandomNode::kClass:
      out = std::string(node.negated ? "[^" : "[") + node.text + "]";
      return notation_ == Notation::kLark ? "/" + out + "/" : out;
    case RandomNode::kRule:
      return node.rule == 0 ? (notation_ == Notation::kLark ? "start" : "root") : "r" + std::to_string(node.rule);
    case RandomNode::kRepeat:
      return WriteRepeat(node);
    default:
      for (const RandomNode& child : node.children) {
        if (!out.empty()) out += node.kind == RandomNode::kAlternatives ? (regex ? "|" : " | ") : (regex ? "" : " ");
        out += node.kind == RandomNode::kSequence ? (regex ? "(?:" : "(") + Write(child) + ")" : Write(child);
      }
      return out;
  }
}

std::string RandomGrammar::Text() const {
  if (notation_ == Notation::kRegex) return Write(rules_[0]);
  std::string out;
  for (size_t i = 0; i < rules_.size(); ++i) {
    RandomNode name;
    name.kind = RandomNode::kRule;
    name.rule = i;
    out += Write(name) + (notation_ == Notation::kLark ? ": " : " ::= ") + Write(rules_[i]) + "\n";
  }
  return out;
}

}  // namespace deepinfer::grammar
