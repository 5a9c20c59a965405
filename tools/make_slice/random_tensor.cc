// SPDX-License-Identifier: Apache-2.0
#include "random_tensor.h"

#include <cmath>
#include <cstring>

#include "numeric/formats.h"

namespace deepinfer::tools {
namespace {

// SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014).
uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t Next() { return Mix(state_ += 0x9E3779B97F4A7C15u); }

 private:
  uint64_t state_;
};

uint64_t HashName(const std::string& name) {
  uint64_t hash = 0xCBF29CE484222325u;
  for (const char c : name) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001B3u;
  return hash;
}

// The sum of four even 16-bit numbers: near enough to a normal deviate, deviation 1.
float Normal(uint64_t bits) {
  constexpr float kDeviation = 37837.2f;  // 65536 * sqrt(4 / 12)
  const auto sum = static_cast<float>((bits & 0xFFFF) + (bits >> 16 & 0xFFFF) + (bits >> 32 & 0xFFFF) + (bits >> 48));
  return (sum - 131070.0f) / kDeviation;
}

}  // namespace

double CodeRms(Kind kind) {
  double sum = 0;
  int count = 0;
  for (int code = 0; code < (kind == Kind::kE4m3 ? 256 : 16); ++code) {
    if (kind == Kind::kE4m3 && (code & 0x7F) == 0x7F) continue;
    const double value = kind == Kind::kE4m3 ? numeric::E4m3ToFloat(static_cast<uint8_t>(code))
                                             : numeric::E2m1ToFloat(static_cast<uint8_t>(code));
    sum += value * value;
    ++count;
  }
  return std::sqrt(sum / count);
}

void FillPiece(const Tensor& tensor, uint64_t seed, int64_t piece, std::span<std::byte> out) {
  Random random(Mix(seed) ^ Mix(HashName(tensor.name) + static_cast<uint64_t>(piece)));
  const auto put = [&](size_t at, const auto& value) { std::memcpy(out.data() + at, &value, sizeof(value)); };
  switch (tensor.kind) {
    case Kind::kBf16:
      for (size_t i = 0; i < out.size(); i += 2) put(i, numeric::FloatToBf16(tensor.mean + tensor.deviation * Normal(random.Next())));
      return;
    case Kind::kF32:
      for (size_t i = 0; i < out.size(); i += 4) put(i, tensor.mean + tensor.deviation * Normal(random.Next()));
      return;
    case Kind::kE4m3:
    case Kind::kE2m1Pairs:
    case Kind::kE8m0:
      break;
  }
  for (size_t i = 0; i < out.size(); i += 8) {
    uint64_t bits = random.Next();
    for (size_t k = i; k < std::min(i + 8, out.size()); ++k, bits >>= 8) {
      auto code = static_cast<uint8_t>(bits);
      if (tensor.kind == Kind::kE4m3 && (code & 0x7F) == 0x7F) code ^= 1;  // no NaN
      if (tensor.kind == Kind::kE8m0) code = static_cast<uint8_t>(tensor.scale_code + static_cast<int>(code % 3) - 1);
      out[k] = static_cast<std::byte>(code);
    }
  }
}

}  // namespace deepinfer::tools
