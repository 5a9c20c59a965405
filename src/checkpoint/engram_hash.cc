// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/engram_hash.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "checkpoint/numpy_random.h"
#include "core/check.h"

namespace deepinfer::checkpoint {
namespace {

bool IsPrime(int64_t n) {
  if (n < 4) return n >= 2;
  if (n % 2 == 0 || n % 3 == 0) return false;
  for (int64_t d = 5; d * d <= n; d += 6) {
    if (n % d == 0 || n % (d + 2) == 0) return false;
  }
  return true;
}

std::vector<int64_t> Multipliers(int64_t layer, const EngramConfig& config) {
  constexpr uint64_t kSeedPerLayer = 10007;
  const int64_t bound = std::max<int64_t>(1, std::numeric_limits<int64_t>::max() / config.compressed_vocab_size / 2);
  NumpyRandom random(kSeedPerLayer * static_cast<uint64_t>(layer));
  std::vector<int64_t> multipliers;
  for (int64_t i = 0; i < config.ngram_max; ++i) multipliers.push_back(2 * random.Integer(bound) + 1);
  return multipliers;
}

}  // namespace

int64_t EngramHash::num_rows() const { return std::accumulate(primes.begin(), primes.end(), int64_t{0}); }

void EngramHash::Rows(std::span<const int32_t> ids, std::span<int64_t> rows) const {
  DI_CHECK(ids.size() == multipliers.size() && rows.size() == primes.size());
  // id * multiplier < 2^63 for every id below the compressed vocabulary: that is what bounds the multipliers.
  int64_t hash = ids[0] * multipliers[0];
  size_t column = 0;
  for (size_t s = 1; s < ids.size(); ++s) {
    hash ^= ids[s] * multipliers[s];
    for (int64_t head = 0; head < num_heads; ++head, ++column) {
      rows[column] = hash % primes[column] + offsets[column];
    }
  }
}

std::vector<EngramHash> MakeEngramHashes(const EngramConfig& config) {
  std::vector<EngramHash> hashes;
  // The rule is: for each n-gram length start at vocab_size again and take, for each head, the next prime that nothing
  // has taken yet, in whatever layer. Since everything below is taken, that is one ascending walk.
  int64_t prime = config.vocab_size - 1;
  for (const int64_t layer : config.layers) {
    EngramHash hash;
    hash.multipliers = Multipliers(layer, config);
    hash.num_heads = config.num_heads;
    int64_t offset = 0;
    for (int64_t column = 0; column < config.num_columns(); ++column) {
      do {
        ++prime;
      } while (!IsPrime(prime));
      hash.primes.push_back(prime);
      hash.offsets.push_back(offset);
      offset += prime;
    }
    hashes.push_back(std::move(hash));
  }
  return hashes;
}

}  // namespace deepinfer::checkpoint
