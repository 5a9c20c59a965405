// SPDX-License-Identifier: Apache-2.0
// Index scores on the tensor cores. Keys and queries are FP4 times powers of two, so bf16 holds both exactly; a dot product
// of 128 terms is one fp32 accumulator over eight steps. Heads are summed in fp32: each thread its own in ascending order,
// then two exchanges within four threads.
//
// A warp scores 32 keys at a time: decoded keys are the A operand in registers, the query lies in shared memory. The
// channels of a step may be taken in any order as long as both sides agree, so each thread decodes 32 consecutive
// channels: one scale, one 16-byte load. A block keeps a few rows' queries and reuses decoded keys between rows of one
// request.
#include "backend/cuda/device/reduce.cuh"
#include "backend/cuda/index/score.cuh"
#include "backend/cuda/ptx/bf16.cuh"
#include "backend/cuda/ptx/mma.cuh"

namespace deepinfer::backend::cuda {
namespace {

constexpr int kDim = 128;
constexpr int kHeadsMax = 64;
constexpr int kSteps = kDim / 16;
constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarp;
constexpr int kWarpKeys = 32;
constexpr int kKeysPerBlock = 1024;      // in rounds of kWarps * kWarpKeys
constexpr int kRowsMax = 4;              // of a block
constexpr int64_t kManyRows = 512;       // from here on blocks are plenty, and rows share decoded keys

// The cache's layout without divisions: a block has 2^shift keys.
struct KeyLayout {
  int32_t shift;
  int32_t codes;
  int32_t scales;
  int64_t block_bytes;
};

struct ScoreParams {
  IndexSelectParams op;
  IndexBatch batch;
  KeyLayout layout;
  int32_t rows_per_block;
};

using KeyFragments = uint32_t[2][kSteps][4];  // [16 keys][step][register]

// A row's query as B operands, [word 4][head][thread 4][8 channels], and its weights.
struct Query {
  uint4 channels[kHeadsMax * kDim / 8];
  float weights[kHeadsMax];
};

// Position i (0..7) of the 16 bytes of word w, thread c, is channel 32 c + 8 w + i / 2 + i % 2 * 4: the order in which pairs of
// nibbles are decoded.
__device__ void LoadQuery(const IndexSelectParams& p, int64_t row, Query& out) {
  const int heads = static_cast<int>(p.heads);
  for (int at = threadIdx.x; at < heads * kDim / 8; at += kThreads) {
    const int w = at % 4, c = at / 4 % 4, head = at / 16;
    const auto* q = reinterpret_cast<const float4*>(p.q + (row * heads + head) * kDim + 32 * c + 8 * w);
    const float4 low = q[0], high = q[1];
    out.channels[(w * heads + head) * 4 + c] = make_uint4(ptx::PackBf16x2(low.x, high.x), ptx::PackBf16x2(low.y, high.y),
                                                          ptx::PackBf16x2(low.z, high.z), ptx::PackBf16x2(low.w, high.w));
  }
  for (int head = threadIdx.x; head < heads; head += kThreads) out.weights[head] = p.weights[row * heads + head] * p.weight_scale;
}

// 32 channels of four keys as read: thread c those of one scale.
struct RawKeys {
  uint4 codes[4];
  uint32_t scales[4];
};

// Keys begin + g, + 8, + 16, + 24 of the row's items; those from `reach` on are zeros.
__device__ void LoadKeys(const ScoreParams& p, int64_t row, int begin, int reach, RawKeys& keys) {
  const int lane = threadIdx.x % kWarp, c = lane % 4;
  const int32_t* blocks = p.op.cache.blocks + int64_t{p.op.requests[row]} * p.op.cache.blocks_stride;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int item = begin + 8 * i + lane / 4;
    keys.codes[i] = {};
    keys.scales[i] = 0;
    if (item >= reach) continue;
    const int latent = ItemToLatent(p.op, row, item), in_block = latent & ((1 << p.layout.shift) - 1);
    const auto* block = reinterpret_cast<const uint8_t*>(p.op.cache.base) + blocks[latent >> p.layout.shift] * p.layout.block_bytes;
    keys.codes[i] = *reinterpret_cast<const uint4*>(block + p.layout.codes + in_block * (kDim / 2) + 16 * c);
    keys.scales[i] = block[p.layout.scales + in_block * (kDim / 32) + c];
  }
}

// Nibbles 0 and 4, or 1 and 5, of a word as two values: one product puts the sign and the rest of both in place, the next
// repairs the exponent's bias, the last applies the scale.
template <int kNibble>
__device__ uint32_t DecodePair(uint32_t word, uint32_t scale) {
  constexpr uint32_t kRepair = 0x7E807E80;  // 2^126
  const uint32_t moved = (word & 0x000F000Fu << 4 * kNibble) * (0x1040u >> 4 * kNibble);
  return ptx::MulBf16x2(ptx::MulBf16x2(moved & 0x81C081C0u, kRepair), scale);
}

__device__ void DecodeKeys(const RawKeys& raw, KeyFragments& keys) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint32_t scale = (raw.scales[i] == 0 ? 0x40u : raw.scales[i] << 7) * 0x10001u;
    const uint32_t word[4] = {raw.codes[i].x, raw.codes[i].y, raw.codes[i].z, raw.codes[i].w};
    auto& a = keys[i / 2];
    const int half = i % 2;
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      // Nibbles (0, 4), (1, 5) make the even step, (2, 6), (3, 7) the odd one.
      a[2 * w][half] = DecodePair<0>(word[w], scale);
      a[2 * w][half + 2] = DecodePair<1>(word[w], scale);
      a[2 * w + 1][half] = DecodePair<0>(word[w] >> 8, scale);
      a[2 * w + 1][half + 2] = DecodePair<1>(word[w] >> 8, scale);
    }
  }
}

// Scores of the warp's 32 keys for one row; lane 4 g holds keys g, g + 8, g + 16, g + 24.
__device__ void ScoreKeys(const IndexSelectParams& p, const Query& query, const KeyFragments& keys, float (&score)[4]) {
  const int lane = threadIdx.x % kWarp, c = lane % 4, heads = static_cast<int>(p.heads);
#pragma unroll
  for (int i = 0; i < 4; ++i) score[i] = 0.0f;
#pragma unroll 1
  for (int first = 0; first < heads; first += 8) {
    float dots[2][4] = {};
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      const uint4 b = query.channels[(w * heads + first) * 4 + lane];
#pragma unroll
      for (int t = 0; t < 2; ++t) {
        ptx::Mma(dots[t], keys[t][2 * w], b.x, b.y);
        ptx::Mma(dots[t], keys[t][2 * w + 1], b.z, b.w);
      }
    }
    const float2 weights = *reinterpret_cast<const float2*>(query.weights + first + 2 * c);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      score[i] = __fmaf_rn(weights.x, fmaxf(dots[i / 2][i % 2 * 2], 0.0f), score[i]);
      score[i] = __fmaf_rn(weights.y, fmaxf(dots[i / 2][i % 2 * 2 + 1], 0.0f), score[i]);
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    score[i] += __shfl_xor_sync(kAllLanes, score[i], 1);
    score[i] += __shfl_xor_sync(kAllLanes, score[i], 2);
    score[i] *= p.score_scale;
  }
}

// Latents that rows row .. last of the same request score, which may therefore be read: decoded keys serve all of them.
__device__ int Reach(const IndexSelectParams& p, int64_t row, int64_t last) {
  int reach = Items(p, row);
  if (p.candidates == Candidates::kRestrict) return reach;
  for (int64_t next = row + 1; next <= last && p.requests[next] == p.requests[row]; ++next) reach = max(reach, Items(p, next));
  return reach;
}

// grid (runs of keys, rows / rows_per_block)
__global__ void __launch_bounds__(kThreads) TensorScoreKernel(const __grid_constant__ ScoreParams p) {
  extern __shared__ uint8_t raw_shared[];
  auto* queries = reinterpret_cast<Query*>(raw_shared);  // [rows_per_block]
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, g = lane / 4, c = lane % 4;
  const int block_begin = static_cast<int>(blockIdx.x) * kKeysPerBlock;
  const int64_t first = p.batch.first_row + int64_t{blockIdx.y} * p.rows_per_block;
  const int64_t last = min(first + p.rows_per_block, p.batch.first_row + p.batch.rows) - 1;
  int items_max = 0;
  for (int64_t row = first; row <= last; ++row) items_max = max(items_max, Items(p.op, row));
  if (block_begin >= items_max) return;
  const int reach = Reach(p.op, first, last), block_end = min(block_begin + kKeysPerBlock, items_max);
  RawKeys next;
  LoadKeys(p, first, block_begin + warp * kWarpKeys, reach, next);
  for (int64_t row = first; row <= last; ++row) LoadQuery(p.op, row, queries[row - first]);
  __syncthreads();
  for (int begin = block_begin + warp * kWarpKeys; begin < block_end; begin += kWarps * kWarpKeys) {
    KeyFragments keys;
    DecodeKeys(next, keys);
    LoadKeys(p, first, begin + kWarps * kWarpKeys, min(reach, block_end), next);
    for (int64_t row = first; row <= last; ++row) {
      if (row > first && (p.op.candidates == Candidates::kRestrict || p.op.requests[row] != p.op.requests[row - 1])) {
        RawKeys own;
        LoadKeys(p, row, begin, Reach(p.op, row, last), own);
        DecodeKeys(own, keys);
      }
      float score[4];
      ScoreKeys(p.op, queries[row - first], keys, score);
      const int items = Items(p.op, row);
      float* out = p.batch.scores + (row - p.batch.first_row) * p.batch.stride;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int item = begin + 8 * i + g;
        if (c == i && item < items) out[item] = score[i];
      }
    }
  }
}

}  // namespace

bool TensorScoreTakes(const IndexSelectParams& p) {
  const int64_t n = p.cache.rows_per_block();
  return p.cache.index_dim == kDim && p.heads % 8 == 0 && p.heads <= kHeadsMax && (n & (n - 1)) == 0;
}

void TensorScore(cudaStream_t stream, const IndexSelectParams& p, const IndexBatch& batch) {
  ScoreParams score{};
  score.op = p;
  score.batch = batch;
  score.rows_per_block = batch.rows >= kManyRows ? kRowsMax : 1;
  while (int64_t{1} << score.layout.shift < p.cache.rows_per_block()) ++score.layout.shift;
  score.layout.codes = static_cast<int32_t>(p.cache.index_codes_offset());
  score.layout.scales = static_cast<int32_t>(p.cache.index_scales_offset());
  score.layout.block_bytes = p.cache.block_bytes();
  const dim3 grid(static_cast<unsigned>((batch.stride + kKeysPerBlock - 1) / kKeysPerBlock),
                  static_cast<unsigned>((batch.rows + score.rows_per_block - 1) / score.rows_per_block));
  const auto bytes = static_cast<size_t>(score.rows_per_block) * sizeof(Query);
  cudaFuncSetAttribute(TensorScoreKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
  TensorScoreKernel<<<grid, kThreads, bytes, stream>>>(score);
}

}  // namespace deepinfer::backend::cuda
