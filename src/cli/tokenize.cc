// SPDX-License-Identifier: Apache-2.0
// deepinfer tokenize and detokenize.
#include "cli/cli.h"
#include "cli/common.h"

namespace deepinfer::cli {

Result<int> Tokenize(const TokenizeOptions& options) {
  DI_ASSIGN_OR_RETURN(const std::shared_ptr<const Tokenizer> tokenizer, LoadTokenizer(options.model));
  std::string text;
  if (options.text) {
    text = *options.text;
  } else {
    DI_ASSIGN_OR_RETURN(text, ReadText("-"));
  }
  DI_RETURN_IF_ERROR(CheckUtf8("text", text));
  DI_ASSIGN_OR_RETURN(const std::vector<TokenId> ids, tokenizer->Encode(text, {.added_tokens = options.special}));
  if (!options.pieces) {
    DI_RETURN_IF_ERROR(Print("[" + JoinIds(ids) + "]\n"));
    return kExitOk;
  }
  for (const TokenId id : ids) {
    std::string piece;
    AppendJsonString(tokenizer->TokenBytes(id), /*ascii_only=*/false, &piece);
    DI_RETURN_IF_ERROR(Print(fmt::format("{}\t{}\n", id, piece)));
  }
  return kExitOk;
}

Result<int> Detokenize(const TokenizeOptions& options) {
  DI_ASSIGN_OR_RETURN(const std::shared_ptr<const Tokenizer> tokenizer, LoadTokenizer(options.model));
  std::string text;
  if (options.text) {
    text = *options.text;
  } else {
    DI_ASSIGN_OR_RETURN(text, ReadText("-"));
  }
  DI_ASSIGN_OR_RETURN(const std::vector<TokenId> ids, ParseIds(text));
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= tokenizer->vocab_size()) {
      return Error(Code::kInvalidArgument, "token {} is {}: the tokenizer has ids 0..{}", i, ids[i],
                   tokenizer->vocab_size() - 1);
    }
  }
  DI_RETURN_IF_ERROR(Print(tokenizer->Decode(ids, /*skip_special=*/!options.special) + "\n"));
  return kExitOk;
}

}  // namespace deepinfer::cli
