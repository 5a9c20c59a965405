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
constexpr int kWarps = 4;
constexpr int kThreads = kWarps * kWarp;
constexpr int kWarpKeys = 32;
constexpr int kKeysPerBlock = 512;       // in rounds of kWarps * kWarpKeys
constexpr int kRowsMax = 4;              // of a block
constexpr int64_t kManyRows = 512;       // from here on blocks are plenty, and rows share decoded keys

using KeyFragments = uint32_t[2][kSteps][4];  // [16 keys][step][register]

// Channel that position i (0..7) of the 16 bytes of word w, thread c holds: the order in which Spread finds nibbles.
__device__ int ChannelAt(int w, int c, int i) { return 32 * c + 8 * w + i / 2 + i % 2 * 4; }

// The query of one row as B operands: [word 4][head][thread 4][8 channels].
__device__ void LoadQuery(const IndexSelectParams& p, int64_t row, uint32_t* out) {
  const int heads = static_cast<int>(p.heads);
  for (int at = threadIdx.x; at < heads * kDim / 2; at += kThreads) {
    const int pair = at % 4, c = at / 4 % 4, head = at / 16 % heads, w = at / 16 / heads;
    const float* q = p.q + (row * heads + head) * kDim;
    out[at] = ptx::PackBf16x2(q[ChannelAt(w, c, 2 * pair)], q[ChannelAt(w, c, 2 * pair + 1)]);
  }
}

// Two values with bf16's exponent bias, repaired and scaled.
__device__ uint32_t DecodePair(uint32_t word, uint32_t scale) {
  constexpr uint32_t kRepair = 0x7E807E80;  // 2^126
  return ptx::MulBf16x2(ptx::MulBf16x2((word & 0x80008000u) | (word >> 6 & 0x01C001C0u), kRepair), scale);
}

// Registers reg = half (row g or g + 8) of all steps from the 32 channels of thread c.
__device__ void DecodeKey(const IndexSelectParams& p, int32_t request, int latent, int c, int half, uint32_t (&a)[kSteps][4]) {
  uint4 codes{};
  uint32_t scale = 0;
  if (latent >= 0) {
    const GlobalRow key = FindGlobalRow(p.cache, request, latent);
    codes = *reinterpret_cast<const uint4*>(key.index_codes + 16 * c);
    const uint32_t code = key.index_scales[c];
    scale = (code == 0 ? 0x40u : code << 7) * 0x10001u;
  }
  const uint32_t word[4] = {codes.x, codes.y, codes.z, codes.w};
#pragma unroll
  for (int w = 0; w < 4; ++w) {
    // Nibbles (0, 4), (1, 5) make the even step, (2, 6), (3, 7) the odd one.
    a[2 * w][half] = DecodePair(word[w] << 12, scale);
    a[2 * w][half + 2] = DecodePair(word[w] << 8, scale);
    a[2 * w + 1][half] = DecodePair(word[w] << 4, scale);
    a[2 * w + 1][half + 2] = DecodePair(word[w], scale);
  }
}

// Scores of the warp's 32 keys for one row; lane 4 g holds keys g, g + 8, g + 16, g + 24.
__device__ void ScoreKeys(const IndexSelectParams& p, int64_t row, const uint32_t* query, const KeyFragments& keys, float (&score)[4]) {
  const int lane = threadIdx.x % kWarp, c = lane % 4, heads = static_cast<int>(p.heads);
#pragma unroll
  for (int i = 0; i < 4; ++i) score[i] = 0.0f;
  for (int first = 0; first < heads; first += 8) {
    float dots[2][4] = {};
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      const uint4 b = *reinterpret_cast<const uint4*>(query + ((w * heads + first) * 4 + lane) * 4);
#pragma unroll
      for (int t = 0; t < 2; ++t) {
        ptx::Mma(dots[t], keys[t][2 * w], b.x, b.y);
        ptx::Mma(dots[t], keys[t][2 * w + 1], b.z, b.w);
      }
    }
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const float weight = p.weights[row * heads + first + 2 * c + e] * p.weight_scale;
#pragma unroll
      for (int i = 0; i < 4; ++i) score[i] += weight * fmaxf(dots[i / 2][i % 2 * 2 + e], 0.0f);
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
__global__ void __launch_bounds__(kThreads) TensorScoreKernel(const __grid_constant__ IndexSelectParams p,
                                                              const __grid_constant__ IndexBatch batch, int rows_per_block) {
  extern __shared__ uint32_t queries[];  // [rows][heads * kDim / 2]
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, g = lane / 4, c = lane % 4;
  const int query_words = static_cast<int>(p.heads) * kDim / 2, block_begin = static_cast<int>(blockIdx.x) * kKeysPerBlock;
  const int64_t first = int64_t{blockIdx.y} * rows_per_block, last = min(first + rows_per_block, batch.rows) - 1;
  int items_max = 0;
  for (int64_t r = first; r <= last; ++r) items_max = max(items_max, Items(p, batch.first_row + r));
  if (block_begin >= items_max) return;
  for (int64_t r = first; r <= last; ++r) LoadQuery(p, batch.first_row + r, queries + (r - first) * query_words);
  __syncthreads();
  const int block_end = min(block_begin + kKeysPerBlock, items_max);
  for (int begin = block_begin + warp * kWarpKeys; begin < block_end; begin += kWarps * kWarpKeys) {
    KeyFragments keys;
    for (int64_t r = first; r <= last; ++r) {
      const int64_t row = batch.first_row + r;
      const int items = Items(p, row);
      const int32_t request = p.requests[row];
      if (r == first || p.candidates == Candidates::kRestrict || request != p.requests[row - 1]) {
        const int reach = Reach(p, row, batch.first_row + last);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int item = begin + 8 * i + g;
          DecodeKey(p, request, item < reach ? ItemToLatent(p, row, item) : -1, c, i % 2, keys[i / 2]);
        }
      }
      float score[4];
      ScoreKeys(p, row, queries + (r - first) * query_words, keys, score);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int item = begin + 8 * i + g;
        if (c == i && item < items) batch.scores[r * batch.stride + item] = score[i];
      }
    }
  }
}

}  // namespace

bool TensorScoreTakes(const IndexSelectParams& p) {
  return p.cache.index_dim == kDim && p.heads % 8 == 0 && p.heads <= kHeadsMax;
}

void TensorScore(cudaStream_t stream, const IndexSelectParams& p, const IndexBatch& batch) {
  const int rows_per_block = batch.rows >= kManyRows ? kRowsMax : 1;
  const dim3 grid(static_cast<unsigned>((batch.stride + kKeysPerBlock - 1) / kKeysPerBlock),
                  static_cast<unsigned>((batch.rows + rows_per_block - 1) / rows_per_block));
  const auto bytes = static_cast<size_t>(rows_per_block * p.heads * kDim * 2);
  cudaFuncSetAttribute(TensorScoreKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
  TensorScoreKernel<<<grid, kThreads, bytes, stream>>>(p, batch, rows_per_block);
}

}  // namespace deepinfer::backend::cuda
