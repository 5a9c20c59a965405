// SPDX-License-Identifier: Apache-2.0
// Index scores on the tensor cores. Where the scales within keys and queries lie close together, a dot product of 128 terms is one of
// integers (integers.cuh). Else: keys and queries are FP4 times powers of two, so bf16 holds both exactly, and a dot product is one
// fp32 accumulator over eight steps. Heads are summed in fp32: each thread its own in ascending order, then two exchanges within four
// threads.
//
// A block keeps the queries of a group of rows (score_plan.cuh) in shared memory as B operands. Each of its four warpgroups takes every
// fourth tile of 128 keys; its warps fetch 32 keys each, two tiles ahead, and decode them into registers as A operand: of wgmma, 64
// keys at a time, where there are several rows; of mma.sync where there is one, and each warp is on its own. Both give a sum the
// same bits. Warps of different warpgroups never wait for each other within a group of rows, so that one decodes or sums up while
// another multiplies.
//
// The channels of a step may be taken in any order as long as both sides agree, so each thread decodes 32 consecutive
// channels: one scale, one 16-byte word. 2^-32 of a key's value stands with the query: then one product with a power of two
// repairs the exponent that moving the bits leaves and applies the scale. Scales from 2^33 on count as 2^33.
#include "backend/cuda/index/integers.cuh"
#include "backend/cuda/index/score_plan.cuh"
#include "backend/cuda/ptx/bf16.cuh"
#include "backend/cuda/ptx/mma.cuh"
#include "backend/cuda/ptx/pipeline.cuh"
#include "backend/cuda/ptx/wgmma_sm90.cuh"

namespace deepinfer::backend::cuda {
namespace {

constexpr int kDim = 128;
constexpr int kHeads = 32;  // fewer are filled up with zeros
static_assert(kHeads == kIntegerHeads && kDim == kIntegerChannels);
constexpr int kSteps = kDim / 16, kIntegerSteps = kDim / 32;
constexpr int kWarps = kScoreThreads / kWarp;
constexpr int kWarpgroups = kWarps / 4;
constexpr int kWarpKeys = 32;
constexpr int kHalfKeys = 16;  // of a product
constexpr int kStages = 3;
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
  uint32_t half;  // 2^16: see KeyTable
};

struct StagedKeys {
  uint8_t codes[kWarpKeys][kCodeBytes];
  uint8_t scales[kWarpKeys][kScaleBytes];
};

struct Shared {
  uint8_t queries[2][kHalfBytes];            // bf16 [half][row * 32 + head][64 channels], 128-byte swizzle
  uint8_t integers[kScoreRows * kRowBytes];  // [row * 32 + head][128 channels], 128-byte swizzle
  StagedKeys keys[kWarps][kStages];
  float weights[kScoreRows][kHeads];
  float integer_weights[kScoreRows][kHeads];
  int start[kHeads / 2][4];  // of one row: of two heads, twice
  int items[kScoreRows];
  ScorePlan plan;
};

// D[64, 2 * 32] = A[64, 32] B[32, ..] + (kFirst ? 0 : D): of bytes with a sign, in integers.
template <bool kFirst>
__device__ void Multiply(int32_t (&d)[kHeads], const uint32_t (&a)[4], uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n64k32.s32.s8.s8 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
      "}, {%32, %33, %34, %35}, %36, %37;\n"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]), "+r"(d[4]), "+r"(d[5]), "+r"(d[6]), "+r"(d[7]),
        "+r"(d[8]), "+r"(d[9]), "+r"(d[10]), "+r"(d[11]), "+r"(d[12]), "+r"(d[13]), "+r"(d[14]), "+r"(d[15]),
        "+r"(d[16]), "+r"(d[17]), "+r"(d[18]), "+r"(d[19]), "+r"(d[20]), "+r"(d[21]), "+r"(d[22]), "+r"(d[23]),
        "+r"(d[24]), "+r"(d[25]), "+r"(d[26]), "+r"(d[27]), "+r"(d[28]), "+r"(d[29]), "+r"(d[30]), "+r"(d[31])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(kFirst ? 0 : 1));
}
// D[64, 32] = A[64, 16] B[16, ..] + (kFirst ? 0 : D): of bf16, in fp32 as bits.
template <bool kFirst>
__device__ void Multiply(int32_t (&d)[kHeads / 2], const uint32_t (&a)[4], uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
      "}, {%16, %17, %18, %19}, %20, %21, 1, 1, 0;\n"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]), "+r"(d[4]), "+r"(d[5]), "+r"(d[6]), "+r"(d[7]),
        "+r"(d[8]), "+r"(d[9]), "+r"(d[10]), "+r"(d[11]), "+r"(d[12]), "+r"(d[13]), "+r"(d[14]), "+r"(d[15])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(kFirst ? 0 : 1));
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

// The same for integers, and what goes with them; returns whether they fit. Channel 32 c + 8 w + n stands in step w at K
// 4 c + n % 4 + 16 * (n / 4).
__device__ bool WriteIntegers(const QueryPart& part, float weight, int r, Shared& shared) {
  const int at = static_cast<int>(threadIdx.x), w = at % 4, c = at / 4 % 4, head = at / kIntegerLanes, n = r * kHeads + head;
  const float q[8] = {part.low.x, part.low.y, part.low.z, part.low.w, part.high.x, part.high.y, part.high.z, part.high.w};
  const QueryIntegers found = FindIntegers(q, weight);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    *reinterpret_cast<uint32_t*>(&shared.integers[n * kDim + ((32 * w + 16 * i + 4 * c) ^ n % 8 << 4)]) = found.words[i];
  }
  if (at % kIntegerLanes == 0) {
    shared.integer_weights[r][head] = found.weight;
    if (r == 0) shared.start[head / 2][head % 2] = shared.start[head / 2][head % 2 + 2] = found.start;
  }
  return found.fits;
}

// Walks a warp's keys, tile after tile; behind the last item of the group it repeats keys, whose scores nobody stores. Lanes hold
// the places of the next runs, so that few steps wait for a look-up.
template <bool kRestrict>
class KeyReader {
 public:
  // `items` (at least one) of the group that `row` leads; tiles from `tile` on, every kWarpgroups-th.
  __device__ KeyReader(const ScoreParams& p, int64_t row, int items, int tile)
      : p_(p), base_(reinterpret_cast<const uint8_t*>(p.op.cache.base) + threadIdx.x % kWarp * 16),
        blocks_(p.op.cache.blocks + int64_t{p.op.requests[row]} * p.op.cache.blocks_stride),
        candidates_(kRestrict ? p.op.blocks + row * p.op.blocks_max : nullptr), last_((items - 1) / kRun * kRun),
        item_(tile * kTileItems + static_cast<int>(threadIdx.x) / kWarp % 4 * kWarpKeys) {
    FindRuns();
  }

  // Starts the copy of the next keys. `to`: shared address of StagedKeys, and 16 bytes for each lane before.
  __device__ void Start(uint32_t to) {
    constexpr int kLanes = kRun * kScaleBytes / 16;  // that copy the scales of a run
#pragma unroll
    for (int i = 0; i < kRuns; ++i) {
      const uint8_t* from = base_ + int64_t{__shfl_sync(kAllLanes, block_, step_ + i)} * p_.layout.block_bytes +
                            __shfl_sync(kAllLanes, codes_, step_ + i);
#pragma unroll
      for (int unit = 0; unit < kRun * kCodeBytes; unit += 16 * kWarp) ptx::CopyUnit(to + i * kRun * kCodeBytes + unit, from + unit);
    }
    const int lane = static_cast<int>(threadIdx.x) % kWarp, run = step_ + lane / kLanes;
    const int64_t block = __shfl_sync(kAllLanes, block_, run), scales = __shfl_sync(kAllLanes, scales_, run);
    // Of base_'s bytes only those within the run.
    const uint8_t* from = base_ + block * p_.layout.block_bytes + scales - lane / kLanes * kLanes * 16;
    if (lane < kRuns * kLanes) ptx::CopyUnit(to + kWarpKeys * kCodeBytes, from);
    step_ += kRuns;
    if (step_ == kWarp) FindRuns();
  }

 private:
  // Keys that lie behind each other in memory.
  static constexpr int kRun = kRestrict ? kRunItems : kWarpKeys;
  static constexpr int kRuns = kWarpKeys / kRun;

  // Lane l: run l % kRuns of step l / kRuns.
  __device__ void FindRuns() {
    const int lane = static_cast<int>(threadIdx.x) % kWarp, shift = p_.layout.candidate_shift;
    const int item = min(item_ + lane / kRuns * (kWarpgroups * kTileItems) + lane % kRuns * kRun, last_);
    const int latent = kRestrict ? (candidates_[item >> shift] << shift) + (item & ((1 << shift) - 1)) : item;
    const int key = latent & ((1 << p_.layout.shift) - 1);
    block_ = blocks_[latent >> p_.layout.shift];
    codes_ = p_.layout.codes + key * kCodeBytes;
    scales_ = p_.layout.scales + key * kScaleBytes;
    item_ += kWarp / kRuns * kWarpgroups * kTileItems;
    step_ = 0;
  }

  const ScoreParams& p_;
  const uint8_t* base_;  // and 16 bytes for each lane before
  const int32_t* blocks_;
  const int32_t* candidates_;
  int last_, item_;
  int step_;                    // its first run's lane
  int block_, codes_, scales_;  // of the lane's run: its block, and where its keys lie in that
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

// The thread's shift of a key of the warp.
__device__ uint32_t ShiftOf(uint32_t shifts, int key) {
  return __byte_perm(__shfl_sync(kAllLanes, shifts, key), 0, 0x4440 + threadIdx.x % 4);
}

// The offset off four bytes below 128.
__device__ uint32_t WithSign(uint32_t bytes) {
  constexpr uint32_t kOffsets = kOffset * 0x01010101u;
  return (bytes ^ kOffsets) | (~bytes & kOffsets) << 1;
}

// As DecodeKeys, bytes with a sign or with kOffset added; the keys fit, and lane k has the shifts of key k.
template <bool kSigned>
__device__ void DecodeIntegers(const StagedKeys& keys, int first, uint32_t shifts, uint32_t shift, uint32_t (&a)[kIntegerSteps][4]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp, g = first + lane / 4, c = lane % 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const uint4 codes = *reinterpret_cast<const uint4*>(&keys.codes[g + 8 * half][16 * c]);
    const uint32_t word[4] = {codes.x, codes.y, codes.z, codes.w};
    const KeyTable table(ShiftOf(shifts, g + 8 * half));
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      table.Decode(word[w], shift, &a[w][half], &a[w][half + 2]);
      if (kSigned) {
        a[w][half] = WithSign(a[w][half]);
        a[w][half + 2] = WithSign(a[w][half + 2]);
      }
    }
  }
}

// Starts the dot products of 64 keys from row r on: of two rows' heads in integers, or of one row's in bf16. The exchange tells ptxas
// that the descriptor is uniform.
template <int kMultiplied, int kCount>
__device__ void StartRows(uint32_t (&a)[kMultiplied][4], uint64_t queries, int r, int32_t (&dots)[kCount]) {
  const uint32_t low = __shfl_sync(kAllLanes, static_cast<uint32_t>(queries) + r * (kRowBytes >> 4), 0);
  const auto operand = [&](int step) {
    return (queries >> 32 << 32) | (low + static_cast<uint32_t>(step / 4 * (kHalfBytes >> 4) + step % 4 * 2));
  };
  ptx::WgmmaFenceRegisters(dots);
  ptx::WgmmaFence();
  Multiply<true>(dots, a[0], operand(0));
#pragma unroll
  for (int step = 1; step < kMultiplied; ++step) Multiply<false>(dots, a[step], operand(step));
  ptx::WgmmaCommit();
}

// Behind the wait: keeps the compiler from using these registers earlier.
template <int kMultiplied, int kCount>
__device__ void KeepUntilHere(uint32_t (&a)[kMultiplied][4], int32_t (&dots)[kCount]) {
  ptx::WgmmaFenceRegisters(dots);
#pragma unroll
  for (int step = 0; step < kMultiplied; ++step) ptx::WgmmaFenceRegisters(a[step]);
}

// max(x, 0): as integers, of which the card compares twice as many at a time.
__device__ float Positive(int32_t x) { return __int_as_float(max(x, 0)); }
__device__ float Positive(float x) { return Positive(__float_as_int(x)); }

// Even lanes get the first of two threads' sums of key g, odd ones that of key g + 8. What lanes c and c ^ 2 have belongs together.
__device__ float JoinHeads(const float (&sum)[2]) {
  const bool odd = threadIdx.x % 2 != 0;
  return (odd ? sum[1] : sum[0]) + __shfl_xor_sync(kAllLanes, odd ? sum[0] : sum[1], 1);
}

// Sums up the heads of a row, whose dot products begin at dots, of keys g and g + 8.
template <typename Dot>
__device__ float SumHeads(const float (&weights)[kHeads], const Dot* dots) {
  const int c = static_cast<int>(threadIdx.x) % 4;
  float sum[2] = {};
#pragma unroll
  for (int n = 0; n < kHeads / 8; ++n) {
    const float2 weight = *reinterpret_cast<const float2*>(&weights[8 * n + 2 * c]);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      sum[half] = __fmaf_rn(weight.x, Positive(dots[4 * n + 2 * half]), sum[half]);
      sum[half] = __fmaf_rn(weight.y, Positive(dots[4 * n + 2 * half + 1]), sum[half]);
    }
  }
  return JoinHeads(sum);
}

// The best score of a run, from lanes that hold it in lane % 4.
__device__ float BestOfRun(float score) {
#pragma unroll
  for (int offset = 4; offset < kWarp; offset *= 2) score = fmaxf(score, __shfl_xor_sync(kAllLanes, score, offset));
  return score;
}

// Sums of heads by integers: what the first half of the warp's keys has, and the second. The keys fit; lane k has the shifts of key k.
// Operands are loaded anew for each eight heads: held in registers, they would push others out into memory.
struct TwoSums {
  float low = 0.0f, high = 0.0f;
};
__device__ TwoSums SumHeadsOfIntegers(const Shared& shared, const StagedKeys& keys, uint32_t shifts, uint32_t shift) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp, c = lane % 4, row = lane % 8, unit = lane / 8;
  uint32_t a[2][kIntegerSteps][4];
#pragma unroll
  for (int half = 0; half < 2; ++half) DecodeIntegers<false>(keys, half * kHalfKeys, shifts, shift, a[half]);
  const uint32_t values = ptx::SharedAddress(shared.integers) + row * kDim;
  const uint32_t first = values + (unit ^ row) * 16, second = values + ((unit + 4) ^ row) * 16;  // units 0 to 3, 4 to 7
  float sum[2][2] = {};
#pragma unroll
  for (int n = 0; n < kHeads / 8; ++n) {
    uint32_t b[2][4];
    ptx::LoadMatrices(first + n * 8 * kDim, b[0]);
    ptx::LoadMatrices(second + n * 8 * kDim, b[1]);
    const float2 weight = *reinterpret_cast<const float2*>(&shared.integer_weights[0][8 * n + 2 * c]);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int4 start = *reinterpret_cast<const int4*>(shared.start[4 * n + c]);
      int32_t dots[4] = {start.x, start.y, start.z, start.w};
#pragma unroll
      for (int w = 0; w < kIntegerSteps; ++w) ptx::MmaBytes(dots, a[half][w], b[w / 2][w % 2 * 2], b[w / 2][w % 2 * 2 + 1]);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        sum[half][i] = __fmaf_rn(weight.x, Positive(dots[2 * i]), sum[half][i]);
        sum[half][i] = __fmaf_rn(weight.y, Positive(dots[2 * i + 1]), sum[half][i]);
      }
    }
  }
  return {JoinHeads(sum[0]), JoinHeads(sum[1])};
}

// The same for any keys, in bf16: the steps, and so the bits, of a group of rows.
__device__ float SumHeadsInBf16(const Shared& shared, const StagedKeys& keys, int first, int r) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp, head = lane / 16 * 8 + lane % 8, unit = lane / 8 % 2;
  const uint32_t queries = ptx::SharedAddress(shared.queries) + r * kRowBytes + head * 128;
  float dots[kHeads / 8][4] = {};
  uint32_t a[kSteps][4];
  DecodeKeys(keys, first, a);
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const uint32_t at = queries + step / 4 * kHalfBytes + ((step % 4 * 2 + unit) ^ head % 8) * 16;
#pragma unroll
    for (int n = 0; n < kHeads / 8; n += 2) {
      uint32_t b[4];
      ptx::LoadMatrices(at + n * 8 * 128, b);
      ptx::Mma(dots[n], a[step], b[0], b[1]);
      ptx::Mma(dots[n + 1], a[step], b[2], b[3]);
    }
  }
  return SumHeads(shared.weights[r], &dots[0][0]);
}

// One row, tiles first, first + kWarpgroups, .. below end. `fits`: its queries are integers.
template <typename Reader>
__device__ void ScoreOneRow(const ScoreParams& p, Shared& shared, Reader& reader, int leader, int first, int end, bool fits) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp, c = lane % 4;
  // The lane's key: the half is its upper bit of c.
  const int key = c / 2 * kHalfKeys + c % 2 * kRunItems + lane / 4;
  int item = first * kTileItems + warp % 4 * kWarpKeys + key;
  float *score_at = p.batch.Scores(leader) + item, *best_at = p.batch.Best(leader) + item / kRunItems;
  const int items = shared.items[0];
  const bool second = c >= 2;
  const auto* staged = reinterpret_cast<const uint8_t*>(shared.keys[warp]);
  const uint32_t to = ptx::SharedAddress(staged) + lane * 16;
  constexpr int kStage = sizeof(StagedKeys), kLastStage = (kStages - 1) * kStage;
  int now = 0, before = kLastStage;  // stages
  int left = (end - first + kWarpgroups - 1) / kWarpgroups - (kStages - 1);  // tiles that are not yet asked for
#pragma unroll 1
  for (; left > -(kStages - 1); --left) {
    ptx::WaitForCopyGroups<kStages - 2>();
    __syncwarp();
    if (left > 0) reader.Start(to + before);
    ptx::EndCopyGroup();
    const StagedKeys& keys = *reinterpret_cast<const StagedKeys*>(staged + now);
    const KeyScales scales(*reinterpret_cast<const uint32_t*>(keys.scales[lane]));
    TwoSums sums;
    float factor = 1.0f;
    if (__all_sync(kAllLanes, fits && scales.fits)) {
      sums = SumHeadsOfIntegers(shared, keys, scales.shifts, p.half);
      factor = __shfl_sync(kAllLanes, scales.factor, key);
    } else {
#pragma unroll 1
      for (int half = 0; half < 2; ++half) {
        sums.low = sums.high;
        sums.high = SumHeadsInBf16(shared, keys, half * kHalfKeys, 0);
      }
    }
    before = now;
    now = now == kLastStage ? 0 : now + kStage;
    const float sum = (second ? sums.high : sums.low) + __shfl_xor_sync(kAllLanes, second ? sums.low : sums.high, 2);
    const float score = sum * factor * p.op.score_scale;
    const bool is_item = item < items;
    const float top = BestOfRun(is_item ? score : -INFINITY);
    if (is_item) *score_at = score;
    if (is_item && lane < 4) *best_at = top;
    item += kWarpgroups * kTileItems;
    score_at += kWarpgroups * kTileItems;
    best_at += kWarpgroups * kTileItems / kRunItems;
  }
}

// Where a lane's scores go: of its item, of the first or the second of two rows.
struct TwoRows {
  uint32_t at;       // among all scores of the batch; a run's is an eighth of it
  const int* items;  // of the row
  int rows;          // that are left, the lane's first included
  int item;
  float factor;      // of the item's key
};

// Stores rows r and r + 1 of which the thread has sums of heads. Lane c of four ends with key g (c even) or g + 8, row r (c < 2)
// or r + 1.
__device__ void StoreTwoRows(const ScoreParams& p, const TwoRows& to, int r, float low, float high) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const bool second = lane % 4 >= 2;
  const float score = ((second ? high : low) + __shfl_xor_sync(kAllLanes, second ? low : high, 2)) * to.factor * p.op.score_scale;
  const bool is_item = r < to.rows && to.item < to.items[r];
  const float top = BestOfRun(is_item ? score : -INFINITY);
  const uint32_t at = to.at + r * static_cast<uint32_t>(p.batch.stride);
  if (is_item) p.batch.scores[at] = score;
  if (is_item && lane < 4) p.batch.best[at / kRunItems] = top;
}

// Rows 0 .. 2 kPairs - 1 of the group, two at a time, summed up while the next two are multiplied; of rows that are not there the
// products come to nothing. No branch stands between them, for which ptxas would run them one by one.
template <int kPairs>
__device__ void ScorePairs(const ScoreParams& p, const Shared& shared, uint32_t (&a)[kIntegerSteps][4], const TwoRows& to,
                           int32_t (&dots)[2][kHeads]) {
  const uint64_t operand = ptx::SwizzledOperand(ptx::SharedAddress(shared.integers));
  StartRows(a, operand, 0, dots[0]);
#pragma unroll
  for (int pair = 0; pair < kPairs; ++pair) {
    ptx::WgmmaWait();
    KeepUntilHere(a, dots[pair % 2]);
    if (pair + 1 < kPairs) StartRows(a, operand, 2 * pair + 2, dots[(pair + 1) % 2]);
    const float low = SumHeads(shared.integer_weights[2 * pair], dots[pair % 2]);
    const float high = SumHeads(shared.integer_weights[2 * pair + 1], dots[pair % 2] + kHeads / 2);
    StoreTwoRows(p, to, 2 * pair, low, high);
  }
}

// The same in bf16, one row at a time: more would not find room in registers.
template <int kPairs>
__device__ void ScorePairsInBf16(const ScoreParams& p, const Shared& shared, uint32_t (&a)[kSteps][4], const TwoRows& to,
                                 int32_t (&dots)[2][kHeads / 2]) {
  const uint64_t operand = ptx::SwizzledOperand(ptx::SharedAddress(shared.queries));
  StartRows(a, operand, 0, dots[0]);
  float low = 0.0f;
#pragma unroll
  for (int r = 0; r < 2 * kPairs; ++r) {
    ptx::WgmmaWait();
    KeepUntilHere(a, dots[r % 2]);
    if (r + 1 < 2 * kPairs) StartRows(a, operand, r + 1, dots[(r + 1) % 2]);
    const float sum = SumHeads(shared.weights[r], dots[r % 2]);
    if (r % 2 == 0) low = sum;
    if (r % 2 == 1) StoreTwoRows(p, to, r - 1, low, sum);
  }
}

// A group of rows, tiles first, first + kWarpgroups, .. below end. `fits`: all rows' queries are integers. The warps of a warpgroup
// agree on each tile.
template <int kPairs, typename Reader>
__device__ void ScoreRows(const ScoreParams& p, Shared& shared, Reader& reader, int leader, int first, int end, bool fits) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp, row = lane % 4 / 2;
  const int key = lane % 2 * kRunItems + lane / 4;
  const uint32_t to = ptx::SharedAddress(shared.keys[warp]) + lane * 16;
  int32_t dots[2][kHeads] = {}, bf16_dots[2][kHeads / 2] = {};
  int stage = 0, before = kStages - 1;
  for (int tile = first; tile < end; tile += kWarpgroups) {
    ptx::WaitForCopyGroups<kStages - 2>();
    __syncwarp();
    if (tile + (kStages - 1) * kWarpgroups < end) reader.Start(to + before * static_cast<int>(sizeof(StagedKeys)));
    ptx::EndCopyGroup();
    const StagedKeys& staged = shared.keys[warp][stage];
    const KeyScales scales(*reinterpret_cast<const uint32_t*>(staged.scales[lane]));
    const bool integers = ptx::SyncThreadsAnd(1 + warp / 4, 4 * kWarp, fits && scales.fits);
#pragma unroll 1
    for (int keys = 0; keys < kWarpKeys; keys += kHalfKeys) {
      const int item = tile * kTileItems + warp % 4 * kWarpKeys + keys + key;
      TwoRows to{static_cast<uint32_t>((leader + row) * p.batch.stride) + item, &shared.items[row], shared.plan.size[leader] - row, item,
                 1.0f};
      if (integers) {
        uint32_t a[kIntegerSteps][4];
        DecodeIntegers<true>(staged, keys, scales.shifts, p.half, a);
        to.factor = __shfl_sync(kAllLanes, scales.factor, keys + key);
        ScorePairs<kPairs>(p, shared, a, to, dots);
      } else {
        uint32_t a[kSteps][4];
        DecodeKeys(staged, keys, a);
        ScorePairsInBf16<kPairs>(p, shared, a, to, bf16_dots);
      }
    }
    before = stage;
    stage = stage == kStages - 1 ? 0 : stage + 1;
  }
}

// Tiles [begin, end) of the group of rows that `leader` of the batch leads: one row, or up to 2 kPairs. Each has code of its own, for
// what many products push out of registers is missing nowhere else then.
template <bool kRestrict, int kPairs>
__device__ void ScoreGroup(const ScoreParams& p, Shared& shared, int leader, int begin, int end) {
  const int t = static_cast<int>(threadIdx.x), warp = t / kWarp, size = kPairs == 0 ? 1 : shared.plan.size[leader];
  const int first = begin + warp / 4, heads = static_cast<int>(p.op.heads);
  const int64_t row = p.batch.first_row + leader;
  // Asked for first, needed last.
  const QueryPart query = ReadQuery(p.op, row);
  const auto weight_of = [&](int r, int head) {
    return head < heads ? p.op.weights[(row + r) * heads + head] * p.op.weight_scale : 0.0f;
  };
  const float weight = t < size * kHeads ? weight_of(t / kHeads, t % kHeads) : 0.0f, first_weight = weight_of(0, t / kIntegerLanes);
  const int items = t < size ? Items(p.op, row + t) : 0;
  KeyReader<kRestrict> reader(p, row, shared.plan.items[leader], first);
  const uint32_t to = ptx::SharedAddress(shared.keys[warp]) + t % kWarp * 16;
#pragma unroll 1
  for (int i = 0; i < kStages - 1; ++i) {
    if (first + i * kWarpgroups < end) reader.Start(to + i * static_cast<int>(sizeof(StagedKeys)));
    ptx::EndCopyGroup();
  }
  __syncthreads();  // the group before is done with its queries
  WriteQuery(query, 0, shared);
  bool fits = WriteIntegers(query, first_weight, 0, shared);
#pragma unroll 2
  for (int r = 1; r < size; ++r) {
    const QueryPart other = ReadQuery(p.op, row + r);
    WriteQuery(other, r, shared);
    fits = WriteIntegers(other, weight_of(r, t / kIntegerLanes), r, shared) && fits;
  }
  if (t < size * kHeads) shared.weights[t / kHeads][t % kHeads] = weight;
  if (t < size) shared.items[t] = items;
  ptx::FenceAsyncShared();
  fits = __syncthreads_and(fits) != 0;
  if constexpr (kPairs == 0) {
    ScoreOneRow(p, shared, reader, leader, first, end, fits);
  } else {
    ScoreRows<kPairs>(p, shared, reader, leader, first, end, fits);
  }
}

template <bool kRestrict>
__global__ void __launch_bounds__(kScoreThreads, 1) TensorScoreKernel(const __grid_constant__ ScoreParams p) {
  extern __shared__ __align__(1024) uint8_t raw_shared[];
  Shared& shared = *reinterpret_cast<Shared*>(raw_shared);
  MakePlan(p.op, p.batch, shared.plan);
  int at = shared.plan.begin;
  const int end = shared.plan.end;
  for (int leader = shared.plan.first; at < end; leader += shared.plan.size[leader]) {
    leader = __shfl_sync(kAllLanes, leader, 0);  // tells ptxas that it is uniform
    const int before = shared.plan.tiles_before[leader], until = min(end, before + shared.plan.Tiles(leader));
    const int size = shared.plan.size[leader];
    if (at >= until) continue;
    if (kRestrict || size == 1) {
      ScoreGroup<kRestrict, 0>(p, shared, leader, at - before, until - before);
    } else if (size <= kScoreRows / 2) {
      ScoreGroup<kRestrict, kScoreRows / 4>(p, shared, leader, at - before, until - before);
    } else {
      ScoreGroup<kRestrict, kScoreRows / 2>(p, shared, leader, at - before, until - before);
    }
    at = until;
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
  score.half = 1u << 16;
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
