// SPDX-License-Identifier: Apache-2.0
// Text without added tokens -> ids: cuts it into pieces and encodes each, from memory where it can.
// A PieceEncoder is immutable and shared between threads; each call borrows a workspace (scratch and caches) that no
// other call uses meanwhile.
#pragma once

#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "tokenizer/bpe.h"
#include "tokenizer/piece_cache.h"
#include "tokenizer/pretokenizer.h"
#include "tokenizer/token_table.h"
#include "tokenizer/tokenizer_json.h"

namespace deepinfer {

class PieceEncoder {
 public:
  PieceEncoder(const TokenizerSpec& spec, std::unique_ptr<PreTokenizer> pre_tokenizer);
  ~PieceEncoder();

  // Appends the ids of `text`, valid UTF-8 of at most kEncodeBytesMax bytes. After an error `ids` holds some of them.
  Status Append(std::string_view text, std::vector<TokenId>* ids) const;
  const PreTokenizer& pre_tokenizer() const { return *pre_tokenizer_; }

 private:
  struct Workspace;
  void AppendPieces(std::string_view text, size_t start, Workspace* workspace, std::vector<TokenId>* ids) const;
  void AppendSlowly(std::string_view piece, uint64_t hash, Workspace* workspace, std::vector<TokenId>* ids) const;
  std::unique_ptr<Workspace> Borrow() const;
  void GiveBack(std::unique_ptr<Workspace> workspace) const;

  std::unique_ptr<PreTokenizer> pre_tokenizer_;
  BpeModel bpe_;
  TokenTable tokens_;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Workspace>> idle_;  // guarded by mutex_
};

}  // namespace deepinfer
