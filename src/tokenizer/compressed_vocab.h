// SPDX-License-Identifier: Apache-2.0
// The compressed vocabulary of Engram: ids whose texts are alike but for case, accents and blanks share one
// compressed id, and n-grams are hashed over those. Stateless.
#pragma once

#include <cstdint>
#include <vector>

#include "core/status.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer {

struct CompressedVocab {
  std::vector<int32_t> ids;  // by token id, vocab_size entries
  int32_t size = 0;          // compressed ids are 0..size-1, numbered as they first appear
};

// For every id of `tokenizer`: its text (Decode), or its spelling where that has U+FFFD, in NFKC, then NFD without
// marks, lower case, each run of blanks one space, trimmed, is its key; equal keys share an id. 99,092 of 129,280 ids
// stay for the published tokenizer: compare `size` with what the checkpoint's tables need.
// Errors: kInternal when ICU lacks its data.
Result<CompressedVocab> CompressVocab(const Tokenizer& tokenizer);

}  // namespace deepinfer
