// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/token_table.h"

#include <bit>

namespace deepinfer {

TokenTable::TokenTable(const TokenizerSpec& spec, const BpeModel& bpe) {
  // Two to a bucket on average, so few are left out; those of low id, which are the frequent ones, come first.
  const size_t num_buckets = std::bit_ceil(spec.vocabulary.size() / 2 + 1);
  mask_ = num_buckets - 1;
  buckets_.resize(num_buckets);
  BpeScratch scratch;
  std::vector<TokenId> ids;
  for (const TokenId id : spec.vocabulary) {
    const std::string& bytes = spec.bytes[id];
    if (bytes.size() > kPieceMax) continue;
    ids.clear();
    bpe.Encode(bytes, &scratch, &ids);
    if (ids.size() != 1 || ids[0] != id) continue;
    const ShortPiece piece = ShortPiece::Of(bytes.data(), bytes.size(), bytes.size());
    for (Entry& entry : buckets_[piece.Hash() & mask_].entries) {
      if (entry.id >= 0) continue;
      entry = {piece.low, High(piece), id};
      break;
    }
  }
}

}  // namespace deepinfer
