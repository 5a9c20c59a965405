// SPDX-License-Identifier: Apache-2.0
// What a consumer warpgroup of the matrix kernel (gemm_sm90.cuh) does with its sums.
#pragma once

#include "backend/cuda/linear/gemm_shared_sm90.cuh"
#include "backend/cuda/ptx/bf16.cuh"
#include "backend/cuda/ptx/pipeline.cuh"

namespace deepinfer::backend::cuda {

// The same number, of which the compiler does not know it: what follows from it is computed here.
__device__ inline int Anew(int value) {
  asm volatile("" : "+r"(value)::"memory");
  return value;
}

// The thread's number in its warpgroup, read anew: what follows from it is then computed behind the main loop and takes no
// registers in it.
__device__ inline int ThreadAnew() {
  int t;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(t)::"memory");
  return t % kWarpgroup;
}

// Accumulator 4 j + 2 h + e of thread t is the row OutputRow(t) + 8 h of its warpgroup's 64 and the token 8 j + FirstToken(t) + e
// of the item.
__device__ inline int OutputRow(int t) { return t / kWarp * 16 + t % kWarp / 4; }
__device__ inline int FirstToken(int t) { return t % 4 * 2; }

// Where a thread's first output of its first token lies; the next token's is y_stride further.
__device__ inline float* OutputPlace(const GemmParams& p, const GemmItem& item, int token, int column) {
  return p.y + int64_t{item.first_row + token} * p.y_stride + column;
}

template <int kRegs>
__device__ void StoreRows(const GemmParams& p, const GemmItem& item, int warpgroup, const float (&sums)[kRegs]) {
  const int tile = item.Tile(p, warpgroup);
  if (tile < 0) return;
  const int t = ThreadAnew(), output = tile * kTileRows + OutputRow(t), first = item.FirstOutput(p), end = first + p.problem_rows;
  const bool has_first = output >= first && output < end, has_second = output + 8 >= first && output + 8 < end;
  const int64_t stride = p.y_stride;
  float* place = OutputPlace(p, item, FirstToken(t), output + item.MatrixOf(p, warpgroup) * p.problem_rows) +
                 (p.span_items == 1 ? 0 : item.span * p.span_y);
  const int tokens = item.rows - FirstToken(t);
#pragma unroll
  for (int j = 0; j < kRegs / 4; ++j, place += 8 * stride) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      if (8 * j + e >= tokens) continue;
      if (has_first) place[e * stride] = sums[4 * j + e];
      if (has_second) place[e * stride + 8] = sums[4 * j + 2 + e];
    }
  }
}

// Value 2 j + e is that of the token whose sums are 4 j + e and 4 j + 2 + e. All at once: behind a branch each load would be waited for,
// so tokens that the item does not have get the last one's.
template <int kValues>
__device__ void LoadOfTokens(const float* of_rows, const GemmItem& item, int t, float (&values)[kValues]) {
#pragma unroll
  for (int i = 0; i < kValues; ++i) values[i] = of_rows[item.first_row + min(FirstToken(t) + i / 2 * 8 + i % 2, item.rows - 1)];
}

// Aligned formats: multiplies the sums with the scales of their outputs and tokens.
template <int kRegs>
__device__ void ScaleSums(const GemmParams& p, const GemmItem& item, int warpgroup, int chunk_bytes, float (&sums)[kRegs]) {
  const bool pair = p.epilogue == Epilogue::kSwiGlu;
  const int t = ThreadAnew(), tile = item.Tile(p, warpgroup), behind = p.num_chunks * chunk_bytes;
  // Of the even and of the odd operand registers' rows: gate's and up's, or the same tile's, eight further on.
  const auto* even = reinterpret_cast<const float*>(item.TileData(p, pair ? warpgroup & ~1 : warpgroup, tile) + behind) + OutputRow(t);
  const auto* odd = reinterpret_cast<const float*>(item.TileData(p, pair ? warpgroup | 1 : warpgroup, tile) + behind) + OutputRow(t);
  const int parity = pair ? warpgroup % 2 : 0;
  const float scale[2] = {even[8 * parity], odd[pair ? 8 * parity : 8]};
  float of_tokens[kRegs / 2];
  LoadOfTokens(p.row_scales, item, t, of_tokens);
#pragma unroll
  for (int r = 0; r < kRegs; ++r) sums[r] *= scale[r / 2 % 2] * of_tokens[r / 4 * 2 + r % 2];
}

// The value of an output whose gate and up are sums 4 j + e and 4 j + 2 + e.
__device__ inline float SwiGlu(float gate, float up, float weight, float limit) {
  gate = fminf(gate, limit);
  return weight * gate / (1.0f + expf(-gate)) * fminf(fmaxf(up, -limit), limit);
}

// As StoreSwiGlu below, into packed_y as bf16. Neighbouring outputs are in lanes 4 apart: they swap, so that one has both outputs
// of the even token and the other both of the odd one.
template <int kRegs>
__device__ void StorePackedSwiGlu(const GemmParams& p, const GemmItem& item, int warpgroup, const float (&sums)[kRegs]) {
  const int tile = item.Tile(p, warpgroup);
  if (tile < 0) return;
  const int t = ThreadAnew(), in_tile = OutputRow(t) + warpgroup % 2 * 8, second = in_tile % 2, row = FirstToken(t) + second;
  uint8_t* atom = p.packed_y + (int64_t{tile} * p.packed_y_groups + item.first_row / kGroupRows) * kAtomBytes;
  uint8_t* place = atom + row * 128 + (in_tile / 8 ^ row) * 16 + (in_tile % 8 - second) * 2;
  const float* weights = p.token_weights == nullptr ? nullptr : p.token_weights + item.first_row + FirstToken(t);
#pragma unroll
  for (int j = 0; j < kRegs / 4; ++j) {
    if (8 * j >= item.rows) return;  // whole warps
    float value[2];
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const bool has = 8 * j + FirstToken(t) + e < item.rows;
      value[e] = SwiGlu(sums[4 * j + e], sums[4 * j + 2 + e], weights == nullptr || !has ? 1.0f : weights[8 * j + e], p.limit);
    }
    const float other = __shfl_xor_sync(kAllLanes, second == 0 ? value[1] : value[0], 4);
    if (8 * j + row < item.rows) {
      *reinterpret_cast<uint32_t*>(place + j * kAtomBytes) =
          second == 0 ? ptx::PackBf16x2(value[0], other) : ptx::PackBf16x2(other, value[1]);
    }
  }
}

// kSwiGlu: the even rows of eight are gate's, the odd ones up's, of the outputs of one parity of the tile.
template <int kRegs>
__device__ void StoreSwiGlu(const GemmParams& p, const GemmItem& item, int warpgroup, const float (&sums)[kRegs]) {
  const int tile = item.Tile(p, warpgroup);
  const int t = ThreadAnew(), output = tile * kTileRows + OutputRow(t) + warpgroup % 2 * 8;
  if (tile < 0 || output >= p.problem_rows) return;
  float* place = OutputPlace(p, item, FirstToken(t), output);
  const int64_t stride = p.y_stride;
  const float* weights = p.token_weights == nullptr ? nullptr : p.token_weights + item.first_row + FirstToken(t);
  int tokens = item.rows - FirstToken(t);
#pragma unroll
  for (int j = 0; j < kRegs / 4; ++j, tokens -= 8, place += 8 * stride) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      if (tokens <= e) return;
      const float weight = weights == nullptr ? 1.0f : weights[8 * j + e];
      place[e * stride] = SwiGlu(sums[4 * j + e], sums[4 * j + 2 + e], weight, p.limit);
    }
  }
}

// Aligned formats: the same value to sums 4 j + e, by instructions that approximate, without branches, so that values are computed side
// by side: the sums are exact to some 14 bits.
template <int kRegs>
__device__ void SwiGluFast(const GemmParams& p, const GemmItem& item, int t, float (&sums)[kRegs]) {
  float weights[kRegs / 2];
  if (p.token_weights != nullptr) {
    LoadOfTokens(p.token_weights, item, t, weights);
  } else {
#pragma unroll
    for (float& weight : weights) weight = 1.0f;
  }
#pragma unroll
  for (int i = 0; i < kRegs / 2; ++i) {
    float& sum = sums[i / 2 * 4 + i % 2];
    const float gate = fminf(sum, p.limit), up = fminf(fmaxf(sums[i / 2 * 4 + i % 2 + 2], -p.limit), p.limit);
    sum = weights[i] * __fdividef(gate, 1.0f + __expf(-gate)) * up;
  }
}

// Aligned formats: stores the values 4 j + 2 kHalf + e as those of `output`, a column of y.
template <int kHalf, int kRegs>
__device__ void StoreOutput(const GemmParams& p, const GemmItem& item, int t, int output, bool exists, const float (&values)[kRegs]) {
  const int64_t stride = p.y_stride;
  if (p.y_bf16 == nullptr) {
    float* place = OutputPlace(p, item, FirstToken(t), output);
    const int tokens = exists ? item.rows - FirstToken(t) : 0;
#pragma unroll
    for (int j = 0; j < kRegs / 4; ++j, place += 8 * stride) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        if (8 * j + e < tokens) place[e * stride] = values[4 * j + 2 * kHalf + e];
      }
    }
    return;
  }
  // Neighbouring outputs are in lanes 4 apart: they swap, so that one has both outputs of the even token and the other both of the odd one.
  const int second = OutputRow(t) % 2, token = FirstToken(t) + second, tokens = exists ? item.rows - token : 0;
  uint16_t* place = p.y_bf16 + int64_t{item.first_row + token} * stride + output - second;
#pragma unroll
  for (int j = 0; j < kRegs / 4; ++j, place += 8 * stride) {
    const float even = values[4 * j + 2 * kHalf], odd = values[4 * j + 2 * kHalf + 1];
    const float other = __shfl_xor_sync(kAllLanes, second == 0 ? odd : even, 4);
    const uint32_t pair = second == 0 ? ptx::PackBf16x2(even, other) : ptx::PackBf16x2(other, odd);
    if (8 * j < tokens) *reinterpret_cast<uint32_t*>(place) = pair;
  }
}

// Both halves as bf16: so that one store writes 16 neighbouring outputs of a token, a whole sector, even lanes have the lower half's pair
// of the even token and the upper half's of the odd one, odd lanes the others.
template <int kRegs>
__device__ void StoreOutputsBf16(const GemmParams& p, const GemmItem& item, int t, int output, bool has_lower, bool has_upper,
                                 const float (&values)[kRegs]) {
  const int64_t stride = p.y_stride;
  const bool odd = OutputRow(t) % 2 != 0;
  const int tokens = item.rows - FirstToken(t);
  const int of_even = (odd ? has_upper : has_lower) ? tokens : 0, of_odd = (odd ? has_lower : has_upper) ? tokens : 0;
  uint16_t* even_place = p.y_bf16 + int64_t{item.first_row + FirstToken(t)} * stride + output + (odd ? 7 : 0);
  uint16_t* odd_place = even_place + stride + (odd ? -8 : 8);
#pragma unroll
  for (int j = 0; j < kRegs / 4; ++j, even_place += 8 * stride, odd_place += 8 * stride) {
    const float lower[2] = {values[4 * j], values[4 * j + 1]}, upper[2] = {values[4 * j + 2], values[4 * j + 3]};
    const float of_lower = __shfl_xor_sync(kAllLanes, odd ? lower[0] : lower[1], 4);
    const float of_upper = __shfl_xor_sync(kAllLanes, odd ? upper[1] : upper[0], 4);
    const uint32_t even_pair = ptx::PackBf16x2(odd ? of_upper : lower[0], odd ? upper[0] : of_lower);
    const uint32_t odd_pair = ptx::PackBf16x2(odd ? of_lower : upper[1], odd ? lower[1] : of_upper);
    if (8 * j < of_even) *reinterpret_cast<uint32_t*>(even_place) = even_pair;
    if (8 * j + 1 < of_odd) *reinterpret_cast<uint32_t*>(odd_place) = odd_pair;
  }
}

// Aligned formats: scales the sums and stores what the epilogue makes of them.
template <int kRegs>
__device__ void StoreAligned(const GemmParams& p, const GemmItem& item, int warpgroup, int chunk_bytes, float (&sums)[kRegs]) {
  const int tile = item.Tile(p, warpgroup);
  if (tile < 0) return;
  ScaleSums(p, item, warpgroup, chunk_bytes, sums);
  const int t = ThreadAnew(), output = tile * kTileRows + OutputRow(t);
  const int first = item.FirstOutput(p), end = first + p.problem_rows;
  if (p.epilogue == Epilogue::kSwiGlu) {
    SwiGluFast(p, item, t, sums);
    const int of_parity = output + warpgroup % 2 * 8;
    return StoreOutput<0>(p, item, t, of_parity, of_parity < end, sums);
  }
  const int column = output + item.MatrixOf(p, warpgroup) * p.problem_rows;
  const bool has_lower = output >= first && output < end, has_upper = output + 8 >= first && output + 8 < end;
  if (p.y_bf16 != nullptr) return StoreOutputsBf16(p, item, t, column, has_lower, has_upper, sums);
  StoreOutput<0>(p, item, t, column, has_lower, sums);
  StoreOutput<1>(p, item, t, column + 8, has_upper, sums);
}

}  // namespace deepinfer::backend::cuda
