// SPDX-License-Identifier: Apache-2.0
// tokenizer.json -> a checked description. Everything that the rest of the tokenizer relies on is verified here: ids
// within limits and unique, every merge made of entries, no option set that would change ids and is not supported.
// Stateless.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer {

struct MergeRule {
  TokenId left = 0;
  TokenId right = 0;
  TokenId merged = 0;
};

struct TokenizerSpec {
  // By id, base vocabulary and added tokens: the file's spelling and the bytes that it stands for. Empty where no
  // token has that id.
  std::vector<std::string> spellings;
  std::vector<std::string> bytes;
  std::vector<TokenId> vocabulary;  // ids of the base vocabulary, ascending
  std::array<TokenId, 256> byte_ids{};  // -1: the vocabulary has no token for that byte
  std::vector<MergeRule> merges;        // by rank
  bool ignore_merges = false;  // a piece that is an entry is that entry, whatever the merges would make of it
  std::vector<AddedToken> added_tokens;      // ascending by id
  std::vector<std::string> split_patterns;   // in order, each applied inside the pieces of the one before
};

// `name` is the file's name for errors.
Result<TokenizerSpec> ParseTokenizerJson(std::string_view json, std::string_view name, const TokenizerLimits& limits);

}  // namespace deepinfer
