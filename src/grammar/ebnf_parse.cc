// SPDX-License-Identifier: Apache-2.0
// The two spellings share a scanner and the shape of their expressions; they differ in how rules begin, in where a branch
// ends, in what an atom may be and in how repeats are counted.
#include <algorithm>

#include "core/utf8.h"
#include "grammar/ebnf.h"
#include "grammar/regex.h"
#include "grammar/unicode.h"
#include "grammar/vocabulary.h"

namespace deepinfer::grammar {
namespace {

constexpr int kDepthMax = 150;
constexpr uint64_t kRepeatMax = uint64_t{1} << 40;

bool IsNameChar(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
}

class Parser {
 public:
  Parser(Engine* engine, std::string_view text) : engine_(engine), text_(text) {
    if (text_.substr(0, 3) == "\xEF\xBB\xBF") text_.remove_prefix(3);
  }
  virtual ~Parser() = default;

 protected:
  Status Bad(std::string_view what) const { return Error(Code::kInvalidArgument, "grammar: line {}: {}", Line(), what); }
  size_t Line() const { return 1 + static_cast<size_t>(std::count(text_.begin(), text_.begin() + static_cast<long>(pos_), '\n')); }
  bool AtEnd() const { return pos_ >= text_.size(); }
  char Peek() const { return AtEnd() ? '\0' : text_[pos_]; }
  bool Skip(std::string_view what) {
    if (text_.substr(pos_, what.size()) != what) return false;
    pos_ += what.size();
    return true;
  }
  std::string Name() {
    const size_t begin = pos_;
    while (!AtEnd() && IsNameChar(Peek())) ++pos_;
    return std::string(text_.substr(begin, pos_ - begin));
  }
  void SkipLine() {
    while (!AtEnd() && Peek() != '\n') ++pos_;
  }
  bool Number(uint64_t* value) {
    if (Peek() < '0' || Peek() > '9') return false;
    *value = 0;
    while (Peek() >= '0' && Peek() <= '9') *value = std::min(*value * 10 + static_cast<uint64_t>(text_[pos_++] - '0'), kRepeatMax);
    return true;
  }

  Result<uint32_t> HexDigits(int count) {
    uint32_t value = 0;
    for (int i = 0; i < count; ++i) {
      const char c = Peek();
      const int digit = c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
      if (digit < 0) return Bad("expected a hexadecimal digit");
      value = value * 16 + static_cast<uint32_t>(digit);
      ++pos_;
    }
    if (value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) return Bad("no such character");
    return value;
  }

  // One character of a literal or class, escapes resolved.
  Result<uint32_t> Char() {
    if (AtEnd()) return Bad("unterminated literal");
    if (Peek() != '\\') {
      const Utf8Char c = DecodeUtf8(text_.substr(pos_));
      if (!c.valid) return Bad("invalid UTF-8");
      pos_ += c.size;
      return c.code_point;
    }
    ++pos_;
    const char c = Peek();
    ++pos_;
    switch (c) {
      case 'n': return uint32_t{'\n'};
      case 'r': return uint32_t{'\r'};
      case 't': return uint32_t{'\t'};
      case 'x': return HexDigits(2);
      case 'u': return HexDigits(4);
      case 'U': return HexDigits(8);
      case '"': case '\\': case '[': case ']': case '-': case '^': case '/': return static_cast<uint32_t>(c);
      default: --pos_; return Bad("unknown escape");
    }
  }

  Result<std::string> Literal() {
    ++pos_;  // the opening quote
    std::string value;
    while (!Skip("\"")) {
      DI_ASSIGN_OR_RETURN(const uint32_t c, Char());
      AppendUtf8(c, &value);
    }
    return value;
  }

  Result<ExprId> CharClass() {
    ++pos_;
    const bool negated = Skip("^");
    CodePointSet set;
    while (!Skip("]")) {
      DI_ASSIGN_OR_RETURN(const uint32_t first, Char());
      uint32_t last = first;
      if (Peek() == '-' && pos_ + 1 < text_.size() && text_[pos_ + 1] != ']') {
        ++pos_;
        DI_ASSIGN_OR_RETURN(last, Char());
        if (last < first) return Bad("class range out of order");
      }
      set.Add(first, last);
    }
    return Utf8Class(engine_->pool(), negated ? set.Complement() : set);
  }

  Result<GrammarNode> SpecialToken() {
    uint64_t id = 0;
    if (!Skip("<[") || !Number(&id) || !Skip("]>")) return Bad("expected <[token id]>");
    if (id >= (1u << 24)) return Bad("token id out of range");
    return Leaf(engine_->pool()->Literal(SpecialSpelling(static_cast<uint32_t>(id))));
  }

  GrammarNode Leaf(ExprId expr) const {
    GrammarNode node;
    node.kind = GrammarNode::kExpr;
    node.expr = expr;
    node.line = Line();
    return node;
  }
  static GrammarNode Repeated(GrammarNode child, uint64_t min, uint64_t max) {
    GrammarNode node;
    node.kind = GrammarNode::kRepeat;
    node.line = child.line;
    node.min = min;
    node.max = max;
    node.children.push_back(std::move(child));
    return node;
  }
  GrammarNode Reference(std::string name) const {
    GrammarNode node;
    node.kind = GrammarNode::kRule;
    node.name = std::move(name);
    node.line = Line();
    return node;
  }

  Result<GrammarNode> TokenOrRule() {
    if (Peek() == '<') return SpecialToken();
    const char c = Peek();
    std::string name = Name();
    if (name.empty()) return Bad(fmt::format("unexpected \"{}\"", c));
    return Reference(std::move(name));
  }

  // What both spellings have in common: alternatives of sequences of atoms, each repeated or not.
  Result<GrammarNode> Alternatives(int depth) {
    if (depth > kDepthMax) return Error(Code::kResourceExhausted, "grammar: line {}: nested deeper than {}", Line(), kDepthMax);
    GrammarNode node;
    node.kind = GrammarNode::kAlternatives;
    node.line = Line();
    do {
      DI_ASSIGN_OR_RETURN(GrammarNode branch, Sequence(depth));
      node.children.push_back(std::move(branch));
    } while (NextBranch());
    return node;
  }
  Result<GrammarNode> Sequence(int depth) {
    GrammarNode node;
    node.line = Line();
    while (!BranchEnds(depth)) {
      DI_ASSIGN_OR_RETURN(GrammarNode atom, Atom(depth));
      DI_ASSIGN_OR_RETURN(GrammarNode item, Postfix(std::move(atom)));
      node.children.push_back(std::move(item));
    }
    return node;
  }
  Result<GrammarNode> Postfix(GrammarNode atom) {
    for (;;) {
      const size_t before = pos_;
      BeforePostfix();
      uint64_t min = 0, max = kNoMax;
      if (Skip("+")) {
        min = 1;
      } else if (Skip("?")) {
        max = 1;
      } else if (!Skip("*")) {
        DI_ASSIGN_OR_RETURN(const bool counted, Count(&min, &max));
        if (!counted) {
          pos_ = before;
          return atom;
        }
        if (max < min) return Bad("repeat bounds out of order");
      }
      atom = Repeated(std::move(atom), min, max);
    }
  }

  // And what they do not. BranchEnds skips blanks first; `depth` counts brackets.
  virtual bool BranchEnds(int depth) = 0;
  virtual bool NextBranch() = 0;
  virtual Result<GrammarNode> Atom(int depth) = 0;
  virtual void BeforePostfix() {}
  virtual Result<bool> Count(uint64_t* min, uint64_t* max) = 0;  // {2,3} or ~2..3; false: there is none

  Engine* engine_;
  std::string_view text_;
  size_t pos_ = 0;
};

class GbnfParser : public Parser {
 public:
  using Parser::Parser;

  Result<GrammarRules> Parse() {
    GrammarRules result;
    result.root = "root";
    for (Blank(); !AtEnd(); Blank()) {
      GrammarRules::Rule rule;
      rule.line = Line();
      rule.name = Name();
      if (rule.name.empty()) return Bad("expected a rule name");
      Blank();
      if (!Skip("::=")) return Bad("expected ::= after \"" + rule.name + "\"");
      DI_ASSIGN_OR_RETURN(rule.body, Alternatives(0));
      result.rules.push_back(std::move(rule));
    }
    return result;
  }

 private:
  void Blank() {
    for (; !AtEnd(); ++pos_) {
      if (Peek() == '#') SkipLine();
      if (AtEnd() || (Peek() != ' ' && Peek() != '\t' && Peek() != '\n' && Peek() != '\r')) return;
    }
  }
  // Whether a new rule begins here.
  bool AtRule() {
    const size_t begin = pos_;
    const bool named = !Name().empty();
    Blank();
    const bool rule = named && text_.substr(pos_, 3) == "::=";
    pos_ = begin;
    return rule;
  }

  bool BranchEnds(int) override {
    Blank();
    return AtEnd() || Peek() == '|' || Peek() == ')' || AtRule();
  }
  bool NextBranch() override { return Skip("|"); }

  Result<GrammarNode> Atom(int depth) override {
    const char c = Peek();
    if (c == '"') {
      DI_ASSIGN_OR_RETURN(const std::string text, Literal());
      return Leaf(engine_->pool()->Literal(text));
    }
    if (c == '[') {
      DI_ASSIGN_OR_RETURN(const ExprId expr, CharClass());
      return Leaf(expr);
    }
    if (Skip(".")) return Leaf(AnyChar(engine_->pool()));
    if (Skip("(")) {
      DI_ASSIGN_OR_RETURN(GrammarNode group, Alternatives(depth + 1));
      if (!Skip(")")) return Bad("unmatched (");
      return group;
    }
    return TokenOrRule();
  }

  Result<bool> Count(uint64_t* min, uint64_t* max) override {
    if (!Skip("{")) return false;
    if (!Number(min)) return Bad("expected a number after {");
    *max = *min;
    if (Skip(",") && !Number(max)) *max = kNoMax;
    if (!Skip("}")) return Bad("expected }");
    return true;
  }
};

class LarkParser : public Parser {
 public:
  LarkParser(Engine* engine, std::string_view text, std::vector<GoalId>* roots) : Parser(engine, text), roots_(roots) {}

  Result<GrammarRules> Parse() {
    GrammarRules result;
    result.root = "start";
    for (Blank(); !AtEnd(); Blank()) {
      if (Peek() == '%') {
        return Error(Code::kUnimplemented, "grammar: line {}: directives (%ignore, %import ...) are not supported", Line());
      }
      while (Skip("?") || Skip("!")) {
      }
      GrammarRules::Rule rule;
      rule.line = Line();
      rule.name = Name();
      if (rule.name.empty()) return Bad("expected a rule name");
      Inline();
      if (Peek() == '[' || Peek() == '{') {
        return Error(Code::kUnimplemented, "grammar: line {}: attributes and templates are not supported", Line());
      }
      uint64_t priority = 0;
      if (Skip(".") && !Number(&priority)) return Bad("expected a priority");
      Inline();
      if (!Skip(":")) return Bad("expected : after \"" + rule.name + "\"");
      DI_ASSIGN_OR_RETURN(rule.body, Alternatives(0));
      result.rules.push_back(std::move(rule));
    }
    return result;
  }

 private:
  void Inline() {
    for (;; ++pos_) {
      if (Peek() == '#' || text_.substr(pos_, 2) == "//") SkipLine();
      if (AtEnd() || (Peek() != ' ' && Peek() != '\t' && Peek() != '\r')) return;
    }
  }
  void Blank() {
    for (Inline(); Peek() == '\n'; Inline()) ++pos_;
  }
  // At a line's end: goes on to the next where that begins with "|".
  bool NextBranch() override {
    const size_t begin = pos_;
    Blank();
    if (Skip("|")) return true;
    pos_ = begin;
    return false;
  }

  bool BranchEnds(int depth) override {
    for (;;) {
      depth > 0 ? Blank() : Inline();
      if (!Skip("->")) break;  // an alias names a branch; it changes nothing
      Inline();
      Name();
    }
    return AtEnd() || Peek() == '|' || Peek() == ')' || Peek() == ']' || Peek() == '\n';
  }

  Result<GrammarNode> Atom(int depth) override {
    const char c = Peek();
    if (c == '"') return Text();
    if (c == '/') return Regex();
    if (Skip("%json")) return InlineSchema();
    if (c == '(' || c == '[') {
      ++pos_;
      DI_ASSIGN_OR_RETURN(GrammarNode group, Alternatives(depth + 1));
      Blank();
      if (!Skip(c == '(' ? ")" : "]")) return Bad("unmatched bracket");
      return c == '(' ? std::move(group) : Repeated(std::move(group), 0, 1);
    }
    return TokenOrRule();
  }

  // "text", "text"i, or "a".."z".
  Result<GrammarNode> Text() {
    DI_ASSIGN_OR_RETURN(const std::string first, Literal());
    if (Skip("..")) {
      if (Peek() != '"') return Bad("expected a literal after ..");
      DI_ASSIGN_OR_RETURN(const std::string last, Literal());
      const Utf8Char a = DecodeUtf8(first.empty() ? "\xFF" : first), b = DecodeUtf8(last.empty() ? "\xFF" : last);
      if (!a.valid || !b.valid || a.size != first.size() || b.size != last.size() || b.code_point < a.code_point) {
        return Bad("bad range of characters");
      }
      return Leaf(Utf8Class(engine_->pool(), CodePointSet().Add(a.code_point, b.code_point)));
    }
    if (!Skip("i")) return Leaf(engine_->pool()->Literal(first));
    ExprId expr = ExprPool::kEpsilon;
    for (size_t i = first.size(); i-- > 0;) {
      const uint8_t byte = static_cast<uint8_t>(first[i]);
      const bool letter = (byte | 32) >= 'a' && (byte | 32) <= 'z';
      const ExprId one = letter ? engine_->pool()->Or(engine_->pool()->Byte(byte | 32), engine_->pool()->Byte(byte & ~32))
                                : engine_->pool()->Byte(byte);
      expr = engine_->pool()->Concat(one, expr);
    }
    return Leaf(expr);
  }

  Result<GrammarNode> Regex() {
    const size_t begin = ++pos_;
    while (!AtEnd() && Peek() != '/' && Peek() != '\n') pos_ += Peek() == '\\' ? 2 : 1;
    if (Peek() != '/') return Bad("unterminated /regex/");
    auto expr = ParseRegex(engine_->pool(), text_.substr(begin, pos_ - begin), RegexMatch::kWhole);
    if (!expr.ok()) return expr.status().In(fmt::format("grammar: line {}", Line()));
    ++pos_;
    if (IsNameChar(Peek())) return Error(Code::kUnimplemented, "grammar: line {}: regex flags are not supported", Line());
    return Leaf(*expr);
  }

  Result<GrammarNode> InlineSchema() {
    Blank();
    const size_t begin = pos_;
    int depth = 0;
    for (bool in_string = false; !AtEnd(); ++pos_) {
      const char c = Peek();
      if (in_string && c == '\\') {
        ++pos_;
      } else if (c == '"') {
        in_string = !in_string;
      } else if (!in_string && c == '{') {
        ++depth;
      } else if (!in_string && c == '}' && --depth == 0) {
        break;
      }
    }
    if (AtEnd()) return Bad("unterminated %json");
    ++pos_;
    auto goal = engine_->LoadSchema(text_.substr(begin, pos_ - begin));
    if (!goal.ok()) return goal.status().In(fmt::format("grammar: line {}", Line()));
    roots_->push_back(*goal);
    GrammarNode node;
    node.kind = GrammarNode::kJson;
    node.goal = *goal;
    node.line = Line();
    return node;
  }

  void BeforePostfix() override { Inline(); }
  Result<bool> Count(uint64_t* min, uint64_t* max) override {
    if (!Skip("~")) return false;
    Inline();
    if (!Number(min)) return Bad("expected a number after ~");
    *max = *min;
    if (Skip("..") && !Number(max)) return Bad("expected a number after ..");
    return true;
  }

  std::vector<GoalId>* roots_;
};

}  // namespace

Result<GrammarRules> ParseGbnf(Engine* engine, std::string_view text) { return GbnfParser(engine, text).Parse(); }

Result<GrammarRules> ParseLark(Engine* engine, std::string_view text, std::vector<GoalId>* roots) {
  return LarkParser(engine, text, roots).Parse();
}

}  // namespace deepinfer::grammar
