// SPDX-License-Identifier: Apache-2.0
// Random content of a tensor, piece by piece: a function of seed, tensor and place alone, whatever the number of threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace deepinfer::tools {

enum class Kind { kBf16, kF32, kE4m3, kE2m1Pairs, kE8m0 };

struct Tensor {
  std::string name;  // as in the file
  Kind kind = Kind::kBf16;
  int64_t elements = 0;   // of the file's dtype
  float mean = 0;         // kBf16, kF32
  float deviation = 1;
  int scale_code = 127;   // kE8m0: codes within one of it
  int64_t begin_byte = 0, end_byte = 0;  // in the file's data part

  int64_t element_bytes() const { return kind == Kind::kF32 ? 4 : kind == Kind::kBf16 ? 2 : 1; }
};

// Root mean square of codes drawn evenly from all numbers of the format.
double CodeRms(Kind kind);

// Fills `out` with the bytes of the tensor from piece `piece` on; pieces are kPieceBytes long.
inline constexpr int64_t kPieceBytes = int64_t{4} << 20;
void FillPiece(const Tensor& tensor, uint64_t seed, int64_t piece, std::span<std::byte> out);

}  // namespace deepinfer::tools
