// SPDX-License-Identifier: Apache-2.0
// Which rows of an Engram table an n-gram reads. Every constant follows from the config: odd multipliers from numpy's
// default_rng, one prime per (layer, n-gram length, head), offsets that stack the heads' ranges in the layer's table.
// Plain values; const use from many threads is safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "checkpoint/config.h"
#include "core/status.h"

namespace deepinfer::checkpoint {

// The part of one layer. Column c = num_heads * (n - 2) + head, for n-grams of length n.
struct EngramHash {
  std::vector<int64_t> multipliers;  // ngram_max of them; [0] is for the current token, [s] for the one s back
  std::vector<int64_t> primes;       // one per column
  std::vector<int64_t> offsets;      // one per column: the first row of its range
  int64_t num_heads = 0;

  int64_t num_columns() const { return static_cast<int64_t>(primes.size()); }
  int64_t num_rows() const;  // of the layer's table

  // The row of every column. `ids` are compressed ids: ids[0] of the token itself, ids[s] of the one s back, with the
  // pad's compressed id where the look-back is blocked. REQUIRES: ids.size() == multipliers.size(), rows.size() ==
  // num_columns(), 0 <= ids < compressed_vocab_size.
  void Rows(std::span<const int32_t> ids, std::span<int64_t> rows) const;
};

// One EngramHash per entry of config.layers, in that order. The row counts are not compared with num_embeddings here
// (ParseModelConfig does). REQUIRES: the ranges that ParseModelConfig checks.
std::vector<EngramHash> MakeEngramHashes(const EngramConfig& config);

}  // namespace deepinfer::checkpoint
