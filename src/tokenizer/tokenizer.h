// SPDX-License-Identifier: Apache-2.0
// Text to token ids and back: Hugging Face `tokenizer.json` files of the byte-level BPE kind, exact to the id.
//
// A Tokenizer is immutable after loading; every const method may be called from any number of threads. It adds no
// begin-of-text token and runs no post-processor: whoever builds a prompt writes control ids itself, by id.
//
// Text that comes from outside must be encoded with EncodePlain(): there the added vocabulary is off, so no spelling
// of it can become a control token.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"

namespace deepinfer {

using TokenId = int32_t;

struct AddedToken {
  TokenId id = 0;
  std::string content;
  bool special = false;     // left out by Decode(ids, skip_special = true)
  bool normalized = false;  // matched after the tokens that are not, in what they leave
};

struct TokenizerLimits {
  size_t file_bytes_max = size_t{64} << 20;
  TokenId id_max = (1 << 20) - 1;  // no higher than this
  size_t token_bytes_max = 4096;  // of one vocabulary entry or added token
};

struct EncodeOptions {
  bool added_tokens = true;  // spellings of added tokens become their ids
  int threads = 1;           // more may be used on texts long enough to gain; the ids never depend on it
};

// What TokenizerLimits does not cover: Encode refuses longer texts (kResourceExhausted).
inline constexpr size_t kEncodeBytesMax = size_t{1} << 30;

class Tokenizer {
 public:
  // `path` is a tokenizer.json. Errors: kNotFound; kDataLoss (broken or contradictory, with the place in the file);
  // kUnimplemented (a kind of tokenizer that is not this one, by name); kResourceExhausted (a limit).
  static Result<std::shared_ptr<const Tokenizer>> Load(const std::string& path, const TokenizerLimits& limits = {});
  // The same from the file's content; `name` stands for the path in errors.
  static Result<std::shared_ptr<const Tokenizer>> FromBytes(std::string_view json, std::string_view name,
                                                            const TokenizerLimits& limits = {});
  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // Bytes that are no UTF-8 are read as U+FFFD, one for each maximal subpart; a caller that would rather refuse
  // them asks FindInvalidUtf8() (core/utf8.h) first. Bytes for which the vocabulary has no token give none.
  // Errors: kResourceExhausted (text over kEncodeBytesMax, or a split pattern from the file that needs too much).
  Result<std::vector<TokenId>> Encode(std::string_view text, const EncodeOptions& options = {}) const;
  // Without the added vocabulary: for all text that is not our own.
  Result<std::vector<TokenId>> EncodePlain(std::string_view text) const;
  // Appends to `ids` what Encode() returns; after an error `ids` is as it was.
  Status AppendEncoded(std::string_view text, const EncodeOptions& options, std::vector<TokenId>* ids) const;

  // Text of `ids`; invalid UTF-8 gives U+FFFD per maximal subpart, ids beyond the vocabulary give nothing.
  std::string Decode(std::span<const TokenId> ids, bool skip_special = false) const;

  // One more than the highest id, added tokens included.
  TokenId vocab_size() const;
  // The id of exactly that added token or vocabulary entry (in the file's spelling: "Ġthe").
  std::optional<TokenId> TokenToId(std::string_view token) const;
  // The file's spelling; nothing where no token has that id. Valid as long as the tokenizer.
  std::optional<std::string_view> IdToToken(TokenId id) const;
  // The bytes that the id stands for in Decode(); empty where no token has that id. Valid as long as the tokenizer.
  std::string_view TokenBytes(TokenId id) const;
  bool IsSpecial(TokenId id) const;
  bool IsAdded(TokenId id) const;
  // In ascending order of id.
  std::span<const AddedToken> added_tokens() const;

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<const Impl> impl);
  std::unique_ptr<const Impl> impl_;
};

// Decode() in steps: what Push() and Flush() append, joined, is Decode() of all the ids, and each piece ends at a
// character's end. Holds at most 3 bytes back. Not for concurrent use; `tokenizer` must outlive it.
class IncrementalDecoder {
 public:
  explicit IncrementalDecoder(const Tokenizer& tokenizer, bool skip_special = false)
      : tokenizer_(&tokenizer), skip_special_(skip_special) {}
  explicit IncrementalDecoder(Tokenizer&&, bool = false) = delete;

  // Appends to `text` the characters that `id` completes.
  void Push(TokenId id, std::string* text);
  // The end: an incomplete character becomes U+FFFD. The decoder is then as new.
  void Flush(std::string* text);
  // Bytes held back: the beginning of a character.
  std::string_view pending() const { return pending_; }

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_;
  std::string pending_;
};

}  // namespace deepinfer
