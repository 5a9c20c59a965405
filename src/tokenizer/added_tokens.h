// SPDX-License-Identifier: Apache-2.0
// Finds added tokens in a text: at each place the longest, from left to right, tokens that are not `normalized`
// first and the others in what those leave. Immutable; threads share it.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace deepinfer {

// A set of strings with their ids, matched leftmost-longest.
class TokenTrie {
 public:
  struct Match {
    size_t begin = 0;
    size_t end = 0;  // begin == end: nothing found
    TokenId id = 0;
  };

  // `tokens` have distinct contents, none empty.
  explicit TokenTrie(std::vector<const AddedToken*> tokens);
  // Whether some token has `before` and `after` next to each other.
  bool HasInside(uint8_t before, uint8_t after) const { return inside_[before << 8 | after]; }
  // The first match in `text` that begins at or after `from`.
  Match Find(std::string_view text, size_t from) const;

 private:
  struct Node {
    TokenId id = -1;  // of the token that ends here
    uint32_t first_edge = 0;
    uint32_t num_edges = 0;
  };
  struct Edge {
    uint8_t byte;
    uint32_t node;
  };
  void Build(uint32_t node, std::span<const AddedToken* const> tokens, size_t depth);
  Match LongestAt(std::string_view text, size_t begin) const;

  std::vector<Node> nodes_;
  std::vector<Edge> edges_;
  std::bitset<(1 << 16)> inside_;  // pairs of neighbouring bytes
  std::array<uint8_t, 256> first_bytes_{};  // 1: a token begins so
};

class AddedTokenMatcher {
 public:
  explicit AddedTokenMatcher(std::span<const AddedToken> tokens);

  // Calls `plain(piece)` and `token(id)` for the parts of `text` in order; an error of `plain` ends it.
  Status Scan(std::string_view text, const std::function<Status(std::string_view)>& plain,
              const std::function<void(TokenId)>& token) const;

  // Whether no match can reach across a cut between these bytes.
  bool SafeCut(uint8_t before, uint8_t after) const {
    return !raw_.HasInside(before, after) && !normalized_.HasInside(before, after);
  }

 private:
  TokenTrie raw_;
  TokenTrie normalized_;
};

}  // namespace deepinfer
