// SPDX-License-Identifier: Apache-2.0
// Tokens as a trie. The children of a node lie side by side, as a walk looks at all of them and enters few; the tokens at or
// below a node are one range of a list. Immutable once built, safe to share.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace deepinfer::grammar {

// What the bytes strictly below a node may be, as bits: nothing but whole plain characters (grammar/text_class.h), digits,
// blanks (as JSON knows them), or spaces and tabs.
enum TailKind : uint8_t { kPlainTail = 1, kDigitTail = 2, kBlankTail = 4, kIndentTail = 8 };

struct Trie {
  static constexpr size_t kDepthMax = 255;  // bytes of a token

  struct Node {
    uint8_t byte = 0;
    uint8_t classes = 0;   // the classes of text in which all tokens from here on down are whole
    uint8_t tail = 0;      // TailKind
    uint8_t longest = 0;   // characters of the longest token from here on down
    uint16_t children = 0;
    uint8_t depth = 0;     // bytes down to here
    uint32_t child = 0;    // index of the first of them
    uint32_t first = 0, below = 0, end = 0;  // in `tokens`: [first, below) end here, [below, end) further down
  };
  std::vector<Node> nodes;  // nodes[0] is the root
  std::vector<uint32_t> tokens;
  std::vector<uint8_t> lengths;  // bytes of each

  using Entry = std::pair<std::string_view, uint32_t>;  // bytes, token
  // `classes`: of each token, by id; 0 for those beyond its end. Entries without bytes are left out.
  // REQUIRES: none is longer than kDepthMax.
  static Trie Build(std::vector<Entry> entries, std::span<const uint8_t> classes);

  // Visits what lies below a node, depth first: visit(child, state, &next) with the state that was given for the child's
  // parent, `start` at first; goes on below the child, with `next`, where that is true.
  template <typename State, typename Visit>
  void Walk(const Node& from, const State& start, Visit visit) const {
    struct Frame {
      uint32_t at, end;
      State state;
    };
    std::array<Frame, kDepthMax + 2> stack;
    size_t depth = 0;
    stack[0] = {from.child, from.child + from.children, start};
    for (;;) {
      Frame& frame = stack[depth];
      if (frame.at == frame.end) {
        if (depth-- == 0) return;
        continue;
      }
      const Node& node = nodes[frame.at++];
      Frame& below = stack[depth + 1];
      if (visit(node, frame.state, &below.state) && node.children > 0) {
        below.at = node.child;
        below.end = node.child + node.children;
        ++depth;
      }
    }
  }
};

inline void SetBit(uint32_t token, uint32_t* mask) { mask[token / 32] |= 1u << (token % 32); }
inline void ClearBit(uint32_t token, uint32_t* mask) { mask[token / 32] &= ~(1u << (token % 32)); }

}  // namespace deepinfer::grammar
