// SPDX-License-Identifier: Apache-2.0
// From a prompt to token ids: control tokens by id, each text on its own with the added vocabulary switched off. Texts
// that come again in later turns (system prompt, tools, earlier messages) are remembered.
// A PromptEncoder may be used by any number of threads; the ids depend on the prompt and the tokenizer alone.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "recipe/control.h"
#include "recipe/prompt.h"
#include "recipe/request.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer::recipe {

struct EncoderOptions {
  size_t cache_bytes = size_t{16} << 20;  // of remembered texts and their ids; 0: none
  int threads = 1;                        // for texts long enough to gain
};

class PromptEncoder {
 public:
  // Finds the ids of the control tokens in the tokenizer's added vocabulary. Error (kDataLoss) where one that every
  // prompt needs is missing; the others are an error when a prompt uses them.
  static Result<std::shared_ptr<PromptEncoder>> Make(std::shared_ptr<const Tokenizer> tokenizer,
                                                     const EncoderOptions& options = {});
  ~PromptEncoder();

  Result<std::vector<TokenId>> Encode(const Prompt& prompt) const;

  // The id of a control token; nothing where the tokenizer has none.
  std::optional<TokenId> Id(Control control) const { return ids_[static_cast<size_t>(control)]; }
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  const std::shared_ptr<const Tokenizer>& shared_tokenizer() const { return tokenizer_; }
  // What the cache holds now.
  size_t cached_bytes() const;

 private:
  class Cache;
  PromptEncoder(std::shared_ptr<const Tokenizer> tokenizer, const EncoderOptions& options);
  Status AppendText(std::string_view text, std::vector<TokenId>* ids) const;

  std::shared_ptr<const Tokenizer> tokenizer_;
  EncoderOptions options_;
  std::array<std::optional<TokenId>, kNumControls> ids_;
  std::unique_ptr<Cache> cache_;
};

// A prompt of a request: of its conversation, or of one of its raw texts.
Prompt RenderRequest(const Request& request, size_t index = 0);
// RenderRequest() and Encode(); raw token ids go through as they are, after the begin-of-sentence token.
Result<std::vector<TokenId>> EncodeRequest(const Request& request, const PromptEncoder& encoder, size_t index = 0);

}  // namespace deepinfer::recipe
