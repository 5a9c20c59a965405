// SPDX-License-Identifier: Apache-2.0
// Index scores on the tensor cores. Keys and queries are FP4 times powers of two, so bf16 holds both exactly; a dot product
// of 128 terms is one fp32 accumulator over eight steps of wgmma. Heads are summed in fp32: each thread its own in ascending
// order, then two exchanges within four threads.
//
// A block keeps the queries of a group of rows (score_plan.cuh) in shared memory as B operands. Each of its four warpgroups
// takes every fourth tile of 128 keys, 64 of them a product; its warps fetch 32 keys each, several tiles ahead, and decode
// them into registers as A operand. Warps of different warpgroups never wait for each other within a group of rows, so that
// one decodes or sums up while another multiplies.
//
// The channels of a step may be taken in any order as long as both sides agree, so each thread decodes 32 consecutive
// channels: one scale, one 16-byte word. 2^-32 of a key's value stands with the query: then one product with a power of two
// repairs the exponent that moving the bits leaves and applies the scale. Scales from 2^33 on count as 2^33.
#include "backend/cuda/index/score_plan.cuh"
#include "backend/cuda/ptx/bf16.cuh"
#include "backend/cuda/ptx/pipeline.cuh"
#include "backend/cuda/ptx/wgmma_sm90.cuh"

namespace deepinfer::backend::cuda {
namespace {

constexpr int kDim = 128;
constexpr int kHeads = 32;  // fewer are filled up with zeros
constexpr int kSteps = kDim / 16;
constexpr int kWarps = kScoreThreads / kWarp;
constexpr int kWarpgroups = kWarps / 4;
constexpr int kWarpKeys = 32;
constexpr int kHalfKeys = 16;  // of a product
constexpr int kStages = 4;
constexpr int kCodeBytes = kDim / 2, kScaleBytes = kDim / 32;
constexpr int kRowBytes = kHeads * 128;             // of a row's queries in one half of the channels
constexpr int kHalfBytes = kScoreRows * kRowBytes;  // 64 channels of all rows
constexpr float kQueryFactor = 4294967296.0f;       // 2^32

// The cache's layout without divisions: a block has 2^shift keys.
struct KeyLayout {
  int32_t shift;
  int32_t candidate_shift;  // a candidate block has 2^that; kRestrict alone
  int32_t codes;
  int32_t scales;
  int32_t block_bytes;
};

struct ScoreParams {
  IndexSelectParams op;
  IndexBatch batch;
  KeyLayout layout;
};

struct StagedKeys {
  uint8_t codes[kWarpKeys][kCodeBytes];
  uint8_t scales[kWarpKeys][kScaleBytes];
};

struct Shared {
  uint8_t queries[2][kHalfBytes];  // [half][row * 32 + head][64 channels], 128-byte swizzle
  StagedKeys keys[kWarps][kStages];
  float weights[kScoreRows][kHeads];
  int items[kScoreRows];
  ScorePlan plan;
};

// D[64, kRows * 32] = A[64, 16] B[16, ..] + (kFirst ? 0 : D).
template <int kRows, bool kFirst>
__device__ void Multiply(float (&d)[kRows * kHeads / 2], const uint32_t (&a)[4], uint64_t b) {
  if constexpr (kRows == 1) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
        "}, {%16, %17, %18, %19}, %20, %21, 1, 1, 0;\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
          "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(kFirst ? 0 : 1));
  } else {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
        "}, {%32, %33, %34, %35}, %36, %37, 1, 1, 0;\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
          "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
          "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
          "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(kFirst ? 0 : 1));
  }
}

// A thread's part of a row's queries: 8 channels of a head.
struct QueryPart {
  float4 low, high;
};

__device__ QueryPart ReadQuery(const IndexSelectParams& p, int64_t row) {
  const int at = static_cast<int>(threadIdx.x), w = at % 4, c = at / 4 % 4, head = at / 16, heads = static_cast<int>(p.heads);
  if (head >= heads) return {};
  const auto* q = reinterpret_cast<const float4*>(p.q + (row * heads + head) * kDim + 32 * c + 8 * w);
  return {q[0], q[1]};
}

// Row r of the group as B operand. Channel 32 c + 8 w + n of the key's word w (thread c, nibble n) stands in step
// 2 w + n / 2 % 2 at K 2 c + n / 4 + 8 * (n % 2): the order in which pairs of nibbles are decoded.
__device__ void WriteQuery(const QueryPart& part, int r, Shared& shared) {
  const int at = static_cast<int>(threadIdx.x), w = at % 4, c = at / 4 % 4, n = r * kHeads + at / 16;
  const float even[4] = {part.low.x, part.low.y, part.low.z, part.low.w}, odd[4] = {part.high.x, part.high.y, part.high.z, part.high.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    // Nibbles i and i + 4.
    const int byte = (16 * (2 * (w % 2) + i / 2) + 8 * (i % 2) + 2 * c) * 2;
    *reinterpret_cast<uint32_t*>(&shared.queries[w / 2][n * 128 + (byte ^ n % 8 << 4)]) =
        ptx::PackBf16x2(even[i] * kQueryFactor, odd[i] * kQueryFactor);
  }
}

// Walks a warp's keys, tile after tile; behind the last item of the group it repeats keys, whose scores nobody stores. Lanes hold
// the places of the next runs, so that few steps wait for a look-up.
template <bool kRestrict>
class KeyReader {
 public:
  // `items` (at least one) of the group that `row` leads; tiles from `tile` on, every kWarpgroups-th.
  __device__ KeyReader(const ScoreParams& p, int64_t row, int items, int tile)
      : p_(p), blocks_(p.op.cache.blocks + int64_t{p.op.requests[row]} * p.op.cache.blocks_stride),
        candidates_(kRestrict ? p.op.blocks + row * p.op.blocks_max : nullptr), last_((items - 1) / kRun * kRun),
        item_(tile * kTileItems + static_cast<int>(threadIdx.x) / kWarp % 4 * kWarpKeys) {
    FindRuns();
  }

  // Starts the copy of the next keys.
  __device__ void Start(StagedKeys& to) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp, mask = (1 << p_.layout.shift) - 1;
    const auto* base = reinterpret_cast<const uint8_t*>(p_.op.cache.base);
    uint8_t* codes = &to.codes[0][0] + 16 * lane;
#pragma unroll
    for (int i = 0; i < kRuns; ++i) {
      const uint8_t* block = base + int64_t{__shfl_sync(kAllLanes, block_, step_ * kRuns + i)} * p_.layout.block_bytes;
      const int key = __shfl_sync(kAllLanes, latent_, step_ * kRuns + i) & mask;
      const uint8_t* from = block + (p_.layout.codes + key * kCodeBytes + 16 * lane);
#pragma unroll
      for (int unit = 0; unit < kRun * kCodeBytes; unit += 16 * kWarp) ptx::CopyUnit(codes + i * kRun * kCodeBytes + unit, from + unit, 16);
      constexpr int kLanes = kRun * kScaleBytes / 16;
      if (lane / kLanes == i) {
        ptx::CopyUnit(&to.scales[0][0] + 16 * lane, block + (p_.layout.scales + key * kScaleBytes + 16 * (lane % kLanes)), 16);
      }
    }
    if (++step_ == kWindow) FindRuns();
  }

 private:
  // Keys that lie behind each other in memory.
  static constexpr int kRun = kRestrict ? kRunItems : kWarpKeys;
  static constexpr int kRuns = kWarpKeys / kRun;
  static constexpr int kWindow = kWarp / kRuns;  // steps whose places the lanes hold

  __device__ void FindRuns() {
    const int lane = static_cast<int>(threadIdx.x) % kWarp, shift = p_.layout.candidate_shift;
    const int item = min(item_ + lane / kRuns * (kWarpgroups * kTileItems) + lane % kRuns * kRun, last_);
    latent_ = kRestrict ? (candidates_[item >> shift] << shift) + (item & ((1 << shift) - 1)) : item;
    block_ = blocks_[latent_ >> p_.layout.shift];
    item_ += kWindow * kWarpgroups * kTileItems;
    step_ = 0;
  }

  const ScoreParams& p_;
  const int32_t* blocks_;
  const int32_t* candidates_;
  int last_, item_, step_;
  int latent_, block_;  // of run lane % kRuns of step lane / kRuns
};

// Nibbles 0 and 4, or 1 and 5, of a word as two values: one product puts the sign and the rest of both in place, the other
// repairs the exponent's bias and applies the scale.
template <int kNibble>
__device__ uint32_t DecodePair(uint32_t word, uint32_t factor) {
  const uint32_t moved = (word & 0x000F000Fu << 4 * kNibble) * (0x1040u >> 4 * kNibble);
  return ptx::MulBf16x2(moved & 0x81C081C0u, factor);
}

// Keys first + g and first + g + 8 of the warp, channels 32 c .. 32 c + 31.
__device__ void DecodeKeys(const StagedKeys& keys, int first, uint32_t (&a)[kSteps][4]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp, g = first + lane / 4, c = lane % 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const uint4 codes = *reinterpret_cast<const uint4*>(&keys.codes[g + 8 * half][16 * c]);
    // The scale's exponent, 126 of the repair, and 32 that stand with the query.
    const uint32_t exponent = min(keys.scales[g + 8 * half][c] + 94u, 254u), factor = exponent * 0x00800080u;
    const uint32_t word[4] = {codes.x, codes.y, codes.z, codes.w};
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      a[2 * w][half] = DecodePair<0>(word[w], factor);
      a[2 * w][half + 2] = DecodePair<1>(word[w], factor);
      a[2 * w + 1][half] = DecodePair<0>(word[w] >> 8, factor);
      a[2 * w + 1][half + 2] = DecodePair<1>(word[w] >> 8, factor);
    }
  }
}

// Starts the dot products of 64 keys with kRows rows' heads, from row r on. The exchange tells ptxas that the descriptor is
// uniform.
template <int kRows>
__device__ void StartRows(uint32_t (&a)[kSteps][4], uint64_t queries, int r, float (&dots)[kRows * kHeads / 2]) {
  const uint32_t low = __shfl_sync(kAllLanes, static_cast<uint32_t>(queries) + r * (kRowBytes >> 4), 0);
  const auto operand = [&](int step) {
    return (queries >> 32 << 32) | (low + static_cast<uint32_t>(step / 4 * (kHalfBytes >> 4) + step % 4 * 2));
  };
  ptx::WgmmaFenceRegisters(dots);
  ptx::WgmmaFence();
  Multiply<kRows, true>(dots, a[0], operand(0));
#pragma unroll
  for (int step = 1; step < kSteps; ++step) Multiply<kRows, false>(dots, a[step], operand(step));
  ptx::WgmmaCommit();
}

// Behind the wait: keeps the compiler from using these registers earlier.
template <int kCount>
__device__ void KeepUntilHere(uint32_t (&a)[kSteps][4], float (&dots)[kCount]) {
  ptx::WgmmaFenceRegisters(dots);
#pragma unroll
  for (int step = 0; step < kSteps; ++step) ptx::WgmmaFenceRegisters(a[step]);
}

// max(x, 0): as integers, of which the card compares twice as many at a time.
__device__ float Positive(float x) { return __int_as_float(max(__float_as_int(x), 0)); }

// Sums up the heads of row r of the group, whose dot products begin at dots, of keys g and g + 8: even lanes get the first of
// two threads' sums of key g, odd ones that of key g + 8. What lanes c and c ^ 2 have belongs together.
__device__ float SumHeads(const Shared& shared, const float* dots, int r) {
  const int c = static_cast<int>(threadIdx.x) % 4;
  float sum[2] = {};
#pragma unroll
  for (int n = 0; n < kHeads / 8; ++n) {
    const float2 weight = *reinterpret_cast<const float2*>(&shared.weights[r][8 * n + 2 * c]);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      sum[half] = __fmaf_rn(weight.x, Positive(dots[4 * n + 2 * half]), sum[half]);
      sum[half] = __fmaf_rn(weight.y, Positive(dots[4 * n + 2 * half + 1]), sum[half]);
    }
  }
  const bool odd = c % 2 != 0;
  return (odd ? sum[1] : sum[0]) + __shfl_xor_sync(kAllLanes, odd ? sum[0] : sum[1], 1);
}

// The best score of a run, from lanes that hold it in lane % 4.
__device__ float BestOfRun(float score) {
#pragma unroll
  for (int offset = 4; offset < kWarp; offset *= 2) score = fmaxf(score, __shfl_xor_sync(kAllLanes, score, offset));
  return score;
}

// One row, tiles first, first + kWarpgroups, .. below end: both halves of a tile at a time.
template <typename Reader>
__device__ void ScoreOneRow(const ScoreParams& p, Shared& shared, Reader& reader, int leader, int first, int end) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp, c = lane % 4;
  const uint64_t queries = ptx::SwizzledOperand(ptx::SharedAddress(shared.queries));
  // The lane's item: the half is its upper bit of c.
  unsigned item = static_cast<unsigned>(first * kTileItems + warp % 4 * kWarpKeys + c / 2 * kHalfKeys + c % 2 * kRunItems + lane / 4);
  float *scores = p.batch.Scores(leader), *best = p.batch.Best(leader);
  const unsigned items = static_cast<unsigned>(shared.items[0]);
  uint32_t a[kSteps][4];
  float dots[2][kHeads / 2] = {};
  unsigned stage = 0;
  for (int tile = first; tile < end; tile += kWarpgroups) {
    ptx::WaitForCopyGroups<kStages - 2>();
    __syncwarp();
    if (tile + (kStages - 1) * kWarpgroups < end) reader.Start(shared.keys[warp][(stage + kStages - 1) % kStages]);
    ptx::EndCopyGroup();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      DecodeKeys(shared.keys[warp][stage], half * kHalfKeys, a);
      StartRows<1>(a, queries, 0, dots[half]);
      ptx::WgmmaWait();
      KeepUntilHere(a, dots[half]);
    }
    stage = (stage + 1) % kStages;
    const float low = SumHeads(shared, dots[0], 0), high = SumHeads(shared, dots[1], 0);
    const bool second = c >= 2;
    const float score = ((second ? high : low) + __shfl_xor_sync(kAllLanes, second ? low : high, 2)) * p.op.score_scale;
    if (item < items) scores[item] = score;
    const float top = BestOfRun(item < items ? score : -INFINITY);
    if (lane < 4 && item < items) best[item / kRunItems] = top;
    item += kWarpgroups * kTileItems;
  }
}

// Where a lane's scores go: of its item, of the first or the second of two rows.
struct TwoRows {
  float* score;
  float* best;
  const int* items;  // of the row
  int rows;          // that are left, the lane's first included
  int item;
};

// Sums up and stores rows r and r + 1. Lane c of four ends with key g (c even) or g + 8, row r (c < 2) or r + 1.
__device__ void FinishTwoRows(const ScoreParams& p, const Shared& shared, const TwoRows& to, int r, const float (&dots)[kHeads]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const float low = SumHeads(shared, dots, r), high = SumHeads(shared, dots + kHeads / 2, r + 1);
  const bool second = lane % 4 >= 2;
  const float score = ((second ? high : low) + __shfl_xor_sync(kAllLanes, second ? low : high, 2)) * p.op.score_scale;
  const bool is_item = r < to.rows && to.item < to.items[r];
  const float top = BestOfRun(is_item ? score : -INFINITY);
  if (is_item) to.score[r * p.batch.stride] = score;
  if (is_item && lane < 4) to.best[r * (p.batch.stride / kRunItems)] = top;
}

// Rows 0 .. 2 kPairs - 1 of the group, two at a time, summed up while the next two are multiplied; of rows that are not there the
// products come to nothing. No branch stands between them, for which ptxas would run them one by one.
template <int kPairs, typename Reader>
__device__ void ScoreRows(const ScoreParams& p, Shared& shared, Reader& reader, int leader, int first, int end) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  const uint64_t queries = ptx::SwizzledOperand(ptx::SharedAddress(shared.queries));
  uint32_t a[kSteps][4];
  float dots[2][kHeads] = {};
  unsigned stage = 0;
  for (int tile = first; tile < end; tile += kWarpgroups) {
    ptx::WaitForCopyGroups<kStages - 2>();
    __syncwarp();
    if (tile + (kStages - 1) * kWarpgroups < end) reader.Start(shared.keys[warp][(stage + kStages - 1) % kStages]);
    ptx::EndCopyGroup();
#pragma unroll 1
    for (int keys = 0; keys < kWarpKeys; keys += kHalfKeys) {
      DecodeKeys(shared.keys[warp][stage], keys, a);
      const int item = tile * kTileItems + warp % 4 * kWarpKeys + keys + lane % 2 * kRunItems + lane / 4, row = lane % 4 / 2;
      const TwoRows to{p.batch.Scores(leader + row) + item, p.batch.Best(leader + row) + item / kRunItems, &shared.items[row],
                       shared.plan.size[leader] - row, item};
      StartRows<2>(a, queries, 0, dots[0]);
#pragma unroll
      for (int pair = 0; pair < kPairs; ++pair) {
        ptx::WgmmaWait();
        KeepUntilHere(a, dots[pair % 2]);
        if (pair + 1 < kPairs) StartRows<2>(a, queries, 2 * pair + 2, dots[(pair + 1) % 2]);
        FinishTwoRows(p, shared, to, 2 * pair, dots[pair % 2]);
      }
    }
    stage = (stage + 1) % kStages;
  }
}

// Tiles [begin, end) of the group of rows that `leader` of the batch leads.
template <bool kRestrict>
__device__ void ScoreGroup(const ScoreParams& p, Shared& shared, int leader, int begin, int end) {
  const int t = static_cast<int>(threadIdx.x), warp = t / kWarp, size = shared.plan.size[leader], heads = static_cast<int>(p.op.heads);
  const int first = begin + warp / 4;
  const int64_t row = p.batch.first_row + leader;
  // Asked for first, needed last.
  const QueryPart query = ReadQuery(p.op, row);
  const bool has_weight = t < size * kHeads && t % kHeads < heads;
  const float weight = has_weight ? p.op.weights[(row + t / kHeads) * heads + t % kHeads] * p.op.weight_scale : 0.0f;
  const int items = t < size ? Items(p.op, row + t) : 0;
  KeyReader<kRestrict> reader(p, row, shared.plan.items[leader], first);
#pragma unroll 1
  for (int i = 0; i < kStages - 1; ++i) {
    if (first + i * kWarpgroups < end) reader.Start(shared.keys[warp][i]);
    ptx::EndCopyGroup();
  }
  __syncthreads();  // the group before is done with its queries
  WriteQuery(query, 0, shared);
#pragma unroll 2
  for (int r = 1; r < size; ++r) WriteQuery(ReadQuery(p.op, row + r), r, shared);
  if (t < size * kHeads) shared.weights[t / kHeads][t % kHeads] = weight;
  if (t < size) shared.items[t] = items;
  ptx::FenceAsyncShared();
  __syncthreads();
  if (kRestrict || size == 1) {
    ScoreOneRow(p, shared, reader, leader, first, end);
  } else if (size <= kScoreRows / 2) {
    ScoreRows<kScoreRows / 4>(p, shared, reader, leader, first, end);
  } else {
    ScoreRows<kScoreRows / 2>(p, shared, reader, leader, first, end);
  }
}

template <bool kRestrict>
__global__ void __launch_bounds__(kScoreThreads, 1) TensorScoreKernel(const __grid_constant__ ScoreParams p) {
  extern __shared__ __align__(1024) uint8_t raw_shared[];
  Shared& shared = *reinterpret_cast<Shared*>(raw_shared);
  int at, end;
  MakePlan(p.op, p.batch, shared.plan, &at, &end);
  for (int leader = shared.plan.first; at < end; leader += shared.plan.size[leader]) {
    leader = __shfl_sync(kAllLanes, leader, 0);  // tells ptxas that it is uniform
    const int before = shared.plan.tiles_before[leader], until = min(end, before + shared.plan.Tiles(leader));
    if (at < until) ScoreGroup<kRestrict>(p, shared, leader, at - before, until - before);
    at = max(at, until);
  }
}

template <bool kRestrict>
void Launch(cudaStream_t stream, int num_sms, const ScoreParams& p) {
  static_assert(sizeof(Shared) <= 227 * 1024);
  cudaFuncSetAttribute(TensorScoreKernel<kRestrict>, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Shared));
  TensorScoreKernel<kRestrict><<<static_cast<unsigned>(num_sms), kScoreThreads, sizeof(Shared), stream>>>(p);
}

bool IsPowerOfTwo(int64_t n) { return n > 0 && (n & (n - 1)) == 0; }
int Log2(int64_t n) {
  int shift = 0;
  while (int64_t{1} << shift < n) ++shift;
  return shift;
}

}  // namespace

bool TensorScoreTakes(const IndexSelectParams& p) {
  const int64_t n = p.cache.rows_per_block();
  return p.cache.index_dim == kDim && p.heads <= kHeads && IsPowerOfTwo(n) && n >= kWarpKeys &&
         (p.candidates != Candidates::kRestrict || (IsPowerOfTwo(p.block_size) && p.block_size >= kRunItems)) &&
         p.cache.index_codes_offset() % 16 == 0 && p.cache.index_scales_offset() % 16 == 0 && p.cache.block_bytes() % 16 == 0;
}

void TensorScore(cudaStream_t stream, int num_sms, const IndexSelectParams& p, const IndexBatch& batch) {
  ScoreParams score{};
  score.op = p;
  score.batch = batch;
  score.layout.shift = Log2(p.cache.rows_per_block());
  score.layout.candidate_shift = Log2(p.block_size);
  score.layout.codes = static_cast<int32_t>(p.cache.index_codes_offset());
  score.layout.scales = static_cast<int32_t>(p.cache.index_scales_offset());
  score.layout.block_bytes = static_cast<int32_t>(p.cache.block_bytes());
  if (p.candidates == Candidates::kRestrict) {
    Launch<true>(stream, num_sms, score);
  } else {
    Launch<false>(stream, num_sms, score);
  }
}

}  // namespace deepinfer::backend::cuda
