// SPDX-License-Identifier: Apache-2.0
// A recursive-descent parser into a small tree, then one pass that turns the tree into an expression. Anchors need the
// second pass: whether text may stand before a node depends on what surrounds it, so each node is compiled with the
// state of its two borders.
#include "grammar/regex.h"

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/utf8.h"
#include "grammar/unicode.h"

namespace deepinfer::grammar {
namespace {

constexpr int kDepthMax = 150;
constexpr size_t kPatternBytesMax = 64 << 10;

constexpr uint8_t kHasStart = 1, kHasEnd = 2;

struct Tree {
  enum Kind { kSet, kConcat, kAlternation, kRepeat, kStart, kEnd } kind = kConcat;
  CodePointSet set;
  std::vector<Tree> children;
  uint64_t min = 0, max = 0;
  size_t offset = 0;
  uint8_t anchors = 0;  // which are inside: kHasStart, kHasEnd
};

CodePointSet Digits() { return CodePointSet().Add('0', '9'); }
CodePointSet WordChars() { return CodePointSet().Add('a', 'z').Add('A', 'Z').Add('0', '9').Add('_'); }
CodePointSet Spaces() {
  return CodePointSet().Add(9, 13).Add(' ').Add(0xA0).Add(0x1680).Add(0x2000, 0x200A).Add(0x2028, 0x2029).Add(0x202F)
      .Add(0x205F).Add(0x3000).Add(0xFEFF);
}
CodePointSet Dot() { return CodePointSet().Add('\n').Add('\r').Add(0x2028, 0x2029).Complement(); }

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Result<Tree> Parse() {
    if (text_.size() > kPatternBytesMax) {
      return Error(Code::kResourceExhausted, "regex: longer than {} bytes", kPatternBytesMax);
    }
    if (FindInvalidUtf8(text_) != std::string_view::npos) return Bad("invalid UTF-8");
    DI_ASSIGN_OR_RETURN(Tree tree, Alternation(0));
    if (pos_ < text_.size()) return Bad("unmatched )");
    return tree;
  }

 private:
  Status Bad(std::string_view what) const {
    return Error(Code::kInvalidArgument, "regex: {} at offset {}", what, pos_);
  }
  Status Refuse(std::string_view what, size_t offset) const {
    return Error(Code::kUnimplemented, "regex: {} at offset {} is not supported", what, offset);
  }
  bool AtEnd() const { return pos_ >= text_.size(); }
  char Peek() const { return text_[pos_]; }
  bool Skip(std::string_view what) {
    if (text_.substr(pos_, what.size()) != what) return false;
    pos_ += what.size();
    return true;
  }
  uint32_t NextChar() {
    const Utf8Char c = DecodeUtf8(text_.substr(pos_));
    pos_ += c.size;
    return c.code_point;
  }

  static void Append(Tree child, Tree* parent) {
    parent->anchors |= child.anchors;
    parent->children.push_back(std::move(child));
  }

  Result<Tree> Alternation(int depth) {
    if (depth > kDepthMax) return Error(Code::kResourceExhausted, "regex: nested deeper than {}", kDepthMax);
    Tree tree;
    tree.kind = Tree::kAlternation;
    tree.offset = pos_;
    do {
      DI_ASSIGN_OR_RETURN(Tree branch, Sequence(depth));
      Append(std::move(branch), &tree);
    } while (Skip("|"));
    if (tree.children.size() == 1) return std::move(tree.children[0]);
    return tree;
  }

  Result<Tree> Sequence(int depth) {
    Tree tree;
    tree.offset = pos_;
    while (!AtEnd() && Peek() != '|' && Peek() != ')') {
      DI_ASSIGN_OR_RETURN(Tree atom, Atom(depth));
      DI_ASSIGN_OR_RETURN(Tree term, Quantified(std::move(atom)));
      Append(std::move(term), &tree);
    }
    return tree;
  }

  Result<Tree> Quantified(Tree atom) {
    for (int count = 0;; ++count) {
      uint64_t min = 0, max = kNoMax;
      const size_t start = pos_;
      if (Skip("*")) {
      } else if (Skip("+")) {
        min = 1;
      } else if (Skip("?")) {
        max = 1;
      } else if (!AtEnd() && Peek() == '{') {
        DI_ASSIGN_OR_RETURN(const bool is_quantifier, Braces(&min, &max));
        if (!is_quantifier) return atom;
      } else {
        return atom;
      }
      if (count > 0 || atom.kind == Tree::kStart || atom.kind == Tree::kEnd) {
        pos_ = start;
        return Bad("nothing to repeat");
      }
      if (max < min) {
        pos_ = start;
        return Bad("repeat bounds out of order");
      }
      Skip("?");  // lazy or greedy: the same language
      Tree repeat;
      repeat.kind = Tree::kRepeat;
      repeat.offset = start;
      repeat.min = min;
      repeat.max = max;
      Append(std::move(atom), &repeat);
      atom = std::move(repeat);
    }
  }

  // {m}, {m,} or {m,n}; anything else leaves the brace to be read as itself.
  Result<bool> Braces(uint64_t* min, uint64_t* max) {
    const size_t start = pos_;
    ++pos_;
    const std::optional<uint64_t> low = Number();
    if (low) {
      *min = *max = *low;
      if (Skip(",")) {
        const std::optional<uint64_t> high = Number();
        *max = high ? *high : kNoMax;
      }
      if (Skip("}")) return true;
    }
    pos_ = start;
    return false;
  }

  std::optional<uint64_t> Number() {
    if (AtEnd() || Peek() < '0' || Peek() > '9') return std::nullopt;
    uint64_t value = 0;
    while (!AtEnd() && Peek() >= '0' && Peek() <= '9') {
      value = std::min<uint64_t>(value * 10 + static_cast<uint64_t>(Peek() - '0'), uint64_t{1} << 40);
      ++pos_;
    }
    return value;
  }

  Result<Tree> Atom(int depth) {
    Tree tree;
    tree.offset = pos_;
    tree.kind = Tree::kSet;
    const char c = Peek();
    if (c == '(') return Group(depth);
    if (c == '*' || c == '+' || c == '?') return Bad("nothing to repeat");
    if (c == '^' || c == '$') {
      ++pos_;
      tree.kind = c == '^' ? Tree::kStart : Tree::kEnd;
      tree.anchors = c == '^' ? kHasStart : kHasEnd;
    } else if (c == '.') {
      ++pos_;
      tree.set = Dot();
    } else if (c == '[') {
      DI_ASSIGN_OR_RETURN(tree.set, Class());
    } else if (c == '\\') {
      DI_ASSIGN_OR_RETURN(tree.set, Escape(false));
    } else {
      tree.set.Add(NextChar());
    }
    return tree;
  }

  Result<Tree> Group(int depth) {
    const size_t start = pos_++;
    if (Skip("?")) {
      if (Skip(":")) {
      } else if (Skip("=") || Skip("!") || Skip("<=") || Skip("<!")) {
        return Refuse("look-around", start);
      } else if (Skip("<") || Skip("P<")) {
        while (!AtEnd() && Peek() != '>') ++pos_;
        if (!Skip(">")) return Bad("unterminated group name");
      } else {
        return Refuse("this kind of group", start);
      }
    }
    DI_ASSIGN_OR_RETURN(Tree tree, Alternation(depth + 1));
    if (!Skip(")")) {
      pos_ = start;
      return Bad("unmatched (");
    }
    return tree;
  }

  Result<CodePointSet> Class() {
    const size_t start = pos_++;
    const bool negated = Skip("^");
    CodePointSet set;
    while (!AtEnd() && Peek() != ']') {
      bool single = true;
      DI_ASSIGN_OR_RETURN(CodePointSet item, ClassItem(&single));
      const bool range = text_.size() > pos_ + 1 && Peek() == '-' && text_[pos_ + 1] != ']';
      if (!range) {
        set.Add(item);
        continue;
      }
      ++pos_;
      bool last_single = true;
      DI_ASSIGN_OR_RETURN(CodePointSet last, ClassItem(&last_single));
      if (!single || !last_single) {  // [\w-.]: the dash is itself
        set.Add(item).Add('-').Add(last);
        continue;
      }
      const uint32_t first_char = Only(item), last_char = Only(last);
      if (last_char < first_char) return Bad("class range out of order");
      set.Add(first_char, last_char);
    }
    if (!Skip("]")) {
      pos_ = start;
      return Bad("unterminated class");
    }
    return negated ? set.Complement() : set;
  }

  static uint32_t Only(const CodePointSet& set) {
    const auto ranges = set.Ranges();
    return ranges.empty() ? 0xFFFD : ranges[0].first;
  }

  Result<CodePointSet> ClassItem(bool* single) {
    if (Peek() != '\\') return CodePointSet().Add(NextChar());
    DI_ASSIGN_OR_RETURN(CodePointSet set, Escape(true));
    const auto ranges = set.Ranges();
    *single = ranges.size() == 1 && ranges[0].first == ranges[0].second;
    return set;
  }

  Result<uint32_t> Hex(int digits) {
    uint32_t value = 0;
    for (int i = 0; i < digits; ++i) {
      const char c = AtEnd() ? 0 : Peek();
      const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
      if (digit < 0) return Bad("expected a hexadecimal digit");
      value = value * 16 + static_cast<uint32_t>(digit);
      ++pos_;
    }
    return value;
  }

  Result<CodePointSet> UnicodeEscape() {
    if (Skip("{")) {
      uint32_t value = 0;
      int digits = 0;
      while (!AtEnd() && Peek() != '}' && digits++ < 6) {
        DI_ASSIGN_OR_RETURN(const uint32_t digit, Hex(1));
        value = value * 16 + digit;
      }
      if (digits == 0 || !Skip("}") || value > 0x10FFFF) return Bad("bad \\u{...}");
      return CodePointSet().Add(value);
    }
    DI_ASSIGN_OR_RETURN(uint32_t value, Hex(4));
    if (value >= 0xD800 && value < 0xDC00 && text_.substr(pos_, 2) == "\\u") {
      pos_ += 2;
      DI_ASSIGN_OR_RETURN(const uint32_t low, Hex(4));
      if (low < 0xDC00 || low > 0xDFFF) return Bad("lone surrogate");
      value = 0x10000 + ((value - 0xD800) << 10) + (low - 0xDC00);
    }
    return CodePointSet().Add(value);
  }

  Result<CodePointSet> Property(bool negated) {
    if (!Skip("{")) return Bad("expected { after \\p");
    const size_t end = text_.find('}', pos_);
    if (end == std::string_view::npos) return Bad("unterminated \\p{");
    auto set = UnicodeProperty(text_.substr(pos_, end - pos_));
    if (!set.ok()) return Bad(set.status().message());
    pos_ = end + 1;
    return negated ? set->Complement() : *set;
  }

  Result<CodePointSet> Escape(bool in_class) {
    const size_t start = pos_++;
    if (AtEnd()) return Bad("trailing backslash");
    const uint32_t c = NextChar();
    switch (c) {
      case 'd': return Digits();
      case 'D': return Digits().Complement();
      case 'w': return WordChars();
      case 'W': return WordChars().Complement();
      case 's': return Spaces();
      case 'S': return Spaces().Complement();
      case 'n': return CodePointSet().Add('\n');
      case 'r': return CodePointSet().Add('\r');
      case 't': return CodePointSet().Add('\t');
      case 'f': return CodePointSet().Add('\f');
      case 'v': return CodePointSet().Add('\v');
      case 'u': return UnicodeEscape();
      case 'p':
      case 'P': return Property(c == 'P');
      default: break;
    }
    if (c == 'x') {
      DI_ASSIGN_OR_RETURN(const uint32_t value, Hex(2));
      return CodePointSet().Add(value);
    }
    if (c == 'c' && !AtEnd() && ((Peek() | 32) >= 'a' && (Peek() | 32) <= 'z')) {
      return CodePointSet().Add(NextChar() % 32);
    }
    if (c == '0') return CodePointSet().Add(0);
    if (c == 'b' && in_class) return CodePointSet().Add('\b');
    if (c == 'b' || c == 'B') return Refuse("a word boundary", start);
    if ((c >= '1' && c <= '9') || c == 'k') return Refuse("a back-reference", start);
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) {
      pos_ = start;
      return Bad("unknown escape");
    }
    return CodePointSet().Add(c);
  }

  std::string_view text_;
  size_t pos_ = 0;
};

// What lies beyond one border of a node.
enum class Border { kOpen, kEdge, kInner };  // any text; the edge of the text; more of the expression

class Compiler {
 public:
  explicit Compiler(ExprPool* pool) : pool_(pool), text_(AnyText(pool)) {}

  Result<ExprId> Compile(const Tree& tree, Border left, Border right) {
    switch (tree.kind) {
      case Tree::kSet:
        return Wrap(Utf8Class(pool_, tree.set), left, right);
      case Tree::kStart:
        return left == Border::kInner ? ExprPool::kEmpty : Wrap(ExprPool::kEpsilon, Border::kEdge, right);
      case Tree::kEnd:
        return right == Border::kInner ? ExprPool::kEmpty : Wrap(ExprPool::kEpsilon, left, Border::kEdge);
      case Tree::kAlternation: {
        std::vector<ExprId> branches;
        for (const Tree& child : tree.children) {
          DI_ASSIGN_OR_RETURN(const ExprId branch, Compile(child, left, right));
          branches.push_back(branch);
        }
        return pool_->Or(std::move(branches));
      }
      case Tree::kRepeat:
        return CompileRepeat(tree, left, right);
      case Tree::kConcat:
        return CompileConcat(tree, left, right);
    }
    return ExprPool::kEmpty;
  }

 private:
  ExprId Wrap(ExprId inner, Border left, Border right) {
    return pool_->Concat({left == Border::kOpen ? text_ : ExprPool::kEpsilon, inner,
                          right == Border::kOpen ? text_ : ExprPool::kEpsilon});
  }

  Result<ExprId> CompileRepeat(const Tree& tree, Border left, Border right) {
    const Tree& child = tree.children[0];
    if (child.anchors == 0) {
      DI_ASSIGN_OR_RETURN(const ExprId inner, Compile(child, Border::kInner, Border::kInner));
      return Wrap(pool_->Repeat(inner, tree.min, tree.max), left, right);
    }
    if (tree.max > 1) return Refused(tree);
    DI_ASSIGN_OR_RETURN(const ExprId once, Compile(child, left, right));
    return tree.min == 1 ? once : pool_->Or(once, Wrap(ExprPool::kEpsilon, left, right));
  }

  static Status Refused(const Tree& tree) {
    return Error(Code::kUnimplemented, "regex: an anchor inside the expression at offset {} is not supported", tree.offset);
  }

  // Whether the children [begin, end) can all match the empty word.
  Result<bool> CanBeEmpty(const Tree& tree, size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      const Tree& child = tree.children[i];
      if (child.kind == Tree::kStart || child.kind == Tree::kEnd) continue;
      if (child.anchors != 0) return Refused(child);
      DI_ASSIGN_OR_RETURN(const ExprId inner, Compile(child, Border::kInner, Border::kInner));
      if (!pool_->Nullable(inner)) return false;
    }
    return true;
  }

  // An anchor inside child i is impossible where something must stand between it and the edge; where that may be empty
  // the two readings would have to be told apart, which is refused.
  Status CheckInnerAnchors(const Tree& tree, size_t begin, size_t i, size_t end) {
    const Tree& child = tree.children[i];
    if ((child.anchors & kHasStart) != 0 && i > begin) {
      DI_ASSIGN_OR_RETURN(const bool can, CanBeEmpty(tree, begin, i));
      if (can) return Refused(child);
    }
    if ((child.anchors & kHasEnd) != 0 && i + 1 < end) {
      DI_ASSIGN_OR_RETURN(const bool can, CanBeEmpty(tree, i + 1, end));
      if (can) return Refused(child);
    }
    return Status();
  }

  Result<ExprId> CompileConcat(const Tree& tree, Border left, Border right) {
    size_t begin = 0, end = tree.children.size();
    // A ^ forces all before it to be empty, a $ all after it.
    for (size_t i = 0; i < tree.children.size(); ++i) {
      if (tree.children[i].kind != Tree::kStart) continue;
      DI_ASSIGN_OR_RETURN(const bool can, CanBeEmpty(tree, 0, i));
      if (!can || left == Border::kInner) return ExprPool::kEmpty;
      begin = i + 1;
      left = Border::kEdge;
    }
    for (size_t i = tree.children.size(); i-- > 0;) {
      if (tree.children[i].kind != Tree::kEnd) continue;
      DI_ASSIGN_OR_RETURN(const bool can, CanBeEmpty(tree, i, tree.children.size()));
      if (!can || right == Border::kInner) return ExprPool::kEmpty;
      end = i;
      right = Border::kEdge;
    }
    if (begin >= end) return Wrap(ExprPool::kEpsilon, left, right);
    ExprId result = ExprPool::kEpsilon;
    for (size_t i = end; i-- > begin;) {
      const Tree& child = tree.children[i];
      DI_RETURN_IF_ERROR(CheckInnerAnchors(tree, begin, i, end));
      DI_ASSIGN_OR_RETURN(const ExprId part, Compile(child, i == begin ? left : Border::kInner,
                                                     i + 1 == end ? right : Border::kInner));
      result = pool_->Concat(part, result);
    }
    return result;
  }

  ExprPool* pool_;
  ExprId text_;
};

}  // namespace

ExprId AnyChar(ExprPool* pool) { return Utf8Class(pool, CodePointSet::All()); }
ExprId AnyText(ExprPool* pool) { return pool->Star(AnyChar(pool)); }

Result<ExprId> ParseRegex(ExprPool* pool, std::string_view pattern, RegexMatch match) {
  DI_ASSIGN_OR_RETURN(const Tree tree, Parser(pattern).Parse());
  const Border border = match == RegexMatch::kWhole ? Border::kEdge : Border::kOpen;
  return Compiler(pool).Compile(tree, border, border);
}

}  // namespace deepinfer::grammar
