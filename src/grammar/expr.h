// SPDX-License-Identifier: Apache-2.0
// Extended regular expressions over bytes - with intersection, complement and counted repeats - as hash-consed nodes,
// and their Brzozowski derivatives. A derivative is an expression again, so the automaton of an expression is built
// lazily, state by state, and boolean combinations cost nothing until they are walked.
// Not thread-safe; ids are valid for the pool that made them, for its whole life.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <deque>
#include <span>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "grammar/budget.h"
#include "grammar/intern.h"

namespace deepinfer::grammar {

using ExprId = uint32_t;
using ByteSet = std::bitset<256>;

inline constexpr uint64_t kNoMax = UINT64_MAX;

class ExprPool {
 public:
  explicit ExprPool(Budget* budget);

  static constexpr ExprId kEmpty = 0;    // no word at all
  static constexpr ExprId kEpsilon = 1;  // the empty word
  static constexpr ExprId kAll = 2;      // every byte string

  ExprId Bytes(const ByteSet& set);
  ExprId Byte(uint8_t byte);
  ExprId Literal(std::string_view text);
  ExprId Concat(ExprId a, ExprId b);
  ExprId Concat(std::initializer_list<ExprId> list);
  ExprId Or(std::vector<ExprId> list);
  ExprId Or(ExprId a, ExprId b) { return Or(std::vector<ExprId>{a, b}); }
  ExprId And(std::vector<ExprId> list);
  ExprId And(ExprId a, ExprId b) { return And(std::vector<ExprId>{a, b}); }
  ExprId Not(ExprId a);
  // max = kNoMax: without end.
  ExprId Repeat(ExprId a, uint64_t min, uint64_t max);
  ExprId Star(ExprId a) { return Repeat(a, 0, kNoMax); }
  ExprId Optional(ExprId a) { return Repeat(a, 0, 1); }
  // Unsigned decimal spellings D or D.F (no exponent; the first digit's form is not checked) whose value times 10^scale
  // is a whole multiple of `modulus`. `digits` of the fraction have been read when in_fraction.
  // REQUIRES: 0 < modulus < 2^60, scale <= 18.
  ExprId Multiple(uint64_t modulus, uint32_t scale) { return Mod(modulus, scale, 0, kModStart); }

  bool Nullable(ExprId a) const { return nodes_[a].nullable; }
  ExprId Derivative(ExprId a, uint8_t byte);
  // Whether the language is empty. Spends budget; answers true ("dead") when it is used up.
  bool IsEmpty(ExprId a);
  bool Matches(ExprId a, std::string_view text);
  // Number of words, at most `cap` (below 2^50); a lower bound where they are very long. Spends budget.
  uint64_t Count(ExprId a, uint64_t cap);
  // Bytes in classes that each of the expressions treats alike at this point. Valid as long as the pool.
  struct Partition {
    std::array<uint8_t, 256> class_of{};
    std::vector<uint8_t> representatives;  // the first byte of each class
  };
  const Partition& PartitionOf(std::span<const ExprId> expressions);
  const std::vector<uint8_t>& Representatives(ExprId a) { return PartitionOf({&a, 1}).representatives; }
  // A superset of the bytes that a word can begin with.
  const ByteSet& FirstBytes(ExprId a);
  // Whether the language surely has finitely many words (by shape).
  bool IsFinite(ExprId a) const { return nodes_[a].finite; }
  // Whether all words begin with one character, seen by shape, and which.
  bool FirstCharacter(ExprId a, uint32_t* code_point) const;
  // Whether `a` is `whole` but for finitely many words that it denies, by shape.
  bool IsButForFinitely(ExprId a, ExprId whole) const;
  // Whether some word begins with any given one of `text` (all words of `characters`), as far as that is plain from the shape.
  bool IsEndless(ExprId a, ExprId text, ExprId character);
  // `a` with what denies only finitely many words left out of an intersection.
  ExprId WithoutFiniteExclusions(ExprId a);
  // The repeat node's fields, where `a` is one.
  bool IsRepeat(ExprId a, ExprId* inner, uint64_t* min, uint64_t* max) const;

  size_t size() const { return nodes_.size(); }
  size_t bytes() const;

 private:
  enum class Kind : uint8_t { kEmpty, kEpsilon, kBytes, kConcat, kOr, kAnd, kNot, kRepeat, kMod };
  static constexpr uint32_t kModStart = 0;     // before the first digit
  static constexpr uint32_t kModInteger = 1;   // after an integer digit
  static constexpr uint32_t kModPoint = 2;     // kModPoint + n: n fraction digits read
  struct Node {
    Kind kind = Kind::kEmpty;
    bool nullable = false;
    bool plain = false;    // built without and, not, multiple: never empty, as constructors drop kEmpty
    uint8_t dead = 0;      // 0 unknown, 1 empty, 2 not empty
    bool finite = false;   // surely finitely many words, by shape; Make finds it out
    uint32_t a = 0, b = 0;  // children; byte-set or list id
    uint64_t min = 0, max = 0;
  };

  // An alternative with a counted repeat: heads, inner{min,max}, rest.
  struct Counted {
    ExprId part = kEmpty;
    std::array<ExprId, 6> heads = {kEpsilon, kEpsilon, kEpsilon, kEpsilon, kEpsilon, kEpsilon};
    ExprId inner = kEmpty, rest = kEpsilon;
    uint64_t min = 0, max = 0;

    bool SameBut(const Counted& other) const { return heads == other.heads && inner == other.inner && rest == other.rest; }
    bool operator<(const Counted& other) const {
      return std::tie(heads, inner, rest, min) < std::tie(other.heads, other.inner, other.rest, other.min);
    }
  };

  ExprId Make(const Node& node);
  // The first repeat of the part that is counted; false where there is none near its beginning.
  bool FindCount(ExprId part, Counted* out) const;
  void MergeCounts(std::vector<ExprId>* parts);
  bool FiniteByShape(const Node& node) const;
  ExprId Mod(uint64_t modulus, uint32_t scale, uint64_t remainder, uint32_t phase);
  ExprId ModDerivative(const Node& node, uint8_t byte);
  ExprId ComputeDerivative(ExprId a, uint8_t byte);
  ExprId ManyDerivative(const Node& node, uint8_t byte);
  void CollectSets(ExprId a, std::vector<uint32_t>* sets, bool* digits, int depth);
  void Flatten(ExprId a, Kind kind, std::vector<ExprId>* out) const;
  bool SearchEmpty(ExprId a);
  uint64_t CountFrom(ExprId a, uint64_t cap, int depth, std::unordered_map<ExprId, uint64_t>* known);

  Budget* budget_;
  std::vector<Node> nodes_;
  std::vector<ByteSet> sets_;
  ListPool set_index_;
  std::vector<ExprId> set_nodes_;  // by id of set_index_
  ListPool partition_index_;
  std::deque<Partition> partitions_;
  ListPool lists_;
  ListPool node_keys_;             // interned node contents
  std::vector<uint32_t> key_to_node_;
  FlatMap derivatives_;
  FlatMap first_index_;
  std::deque<ByteSet> first_sets_;
  std::vector<Counted> counted_;  // scratch
};

}  // namespace deepinfer::grammar
