// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/linear/aligned_inputs.h"

#include "backend/cuda/device/aligned_row.cuh"
#include "backend/cuda/launch_after.h"
#include "backend/cuda/linear/input_units.cuh"
#include "backend/cuda/linear/packed.h"
#include "backend/cuda/ptx/grid.cuh"
#include "core/check.h"

namespace deepinfer::backend::cuda {
namespace {

// A row's units are dealt to as many threads as give each the same number.
constexpr int kThreadsMax = 320, kRoundsMax = 7;
static_assert(kRoundsMax * kThreadsMax * kUnit >= kAlignedColsMax);
constexpr int kThreads = 256;  // that gather
constexpr int kGatherRounds = 2, kGatherChunks = kThreads / (8 * kGroupRows);

// The maxima of kRows values. All threads of the block must call.
template <int kRows>
__device__ void BlockMax(int (&values)[kRows]) {
  __shared__ int warps[kRows][kThreadsMax / kWarp];
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    values[i] = __reduce_max_sync(kAllLanes, values[i]);
    if (threadIdx.x % kWarp == 0) warps[i][threadIdx.x / kWarp] = values[i];
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    for (int w = 0; w < static_cast<int>(blockDim.x) / kWarp; ++w) values[i] = max(values[i], warps[i][w]);
  }
}

// One block kRows rows, which its threads hold, kRounds units of each.
template <int kRounds, int kRows>
__global__ void __launch_bounds__(kThreadsMax) PackAlignedKernel(PackInputsParams p, bool vectors, PackedInputs out) {
  ptx::GridBegin();
  const int64_t first = int64_t{blockIdx.x} * kRows;
  const int t = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  const int units = static_cast<int>(p.problems * p.cols / kUnit);
  float v[kRows][kRounds][kUnit];
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const int64_t source = SourceRow(p, first + i);
#pragma unroll
    for (int r = 0; r < kRounds; ++r) {
      const int unit = r * threads + t;
      LoadUnit(p, first + i, source * p.x_stride + unit * kUnit, source >= 0 && unit < units ? kUnit : 0, vectors, v[i][r]);
    }
  }
  uint2 codes[kRows][kRounds];
  int scales[kRows][kRounds], most[kRows] = {};
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
#pragma unroll
    for (int r = 0; r < kRounds; ++r) {
      const float(&x)[kUnit] = v[i][r];
      const int scale = BlockScale(x);
      const float by = ScaleInverse(scale);
      codes[i][r] = make_uint2(EncodeE4m3(x[0] * by, x[1] * by, x[2] * by, x[3] * by),
                               EncodeE4m3(x[4] * by, x[5] * by, x[6] * by, x[7] * by));
      most[i] = max(most[i], scale);
      scales[i][r] = scale;
    }
  }
  BlockMax(most);
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    if (t == i) out.row_scales[first + i] = numeric::E8m0ToFloat(static_cast<uint8_t>(most[i]));
#pragma unroll
    for (int r = 0; r < kRounds; ++r) {
      const int unit = r * threads + t;
      if (unit >= units) continue;
      *reinterpret_cast<uint2*>(out.data + AlignedInputPlace(first + i, unit * kUnit, out.part_bytes)) =
          make_uint2(AlignE4m3(codes[i][r].x, scales[i][r], most[i]), AlignE4m3(codes[i][r].y, scales[i][r], most[i]));
    }
  }
}

// grid (row groups of the result, chunks); a thread copies units of 16 bytes.
__global__ void __launch_bounds__(kThreads) GatherAlignedKernel(PackedInputs from, const int32_t* row_map, int chunks, PackedInputs out) {
  ptx::GridBegin();
  const int t = static_cast<int>(threadIdx.x), unit = t % 8, in_group = t / 8 % kGroupRows;
  const int64_t row = int64_t{blockIdx.x} * kGroupRows + in_group, source = row_map[row];
  const int first = static_cast<int>(blockIdx.y) * kGatherChunks * kGatherRounds + t / (8 * kGroupRows);
  const uint8_t* read = from.data + InputRow(source) + InputUnit(static_cast<int>(source % kGroupRows), unit);
  uint8_t* write = out.data + InputRow(row) + InputUnit(in_group, unit);
  uint4 words[kGatherRounds] = {};
#pragma unroll
  for (int r = 0; r < kGatherRounds; ++r) {
    const int chunk = first + r * kGatherChunks;
    if (source >= 0 && chunk < chunks) words[r] = *reinterpret_cast<const uint4*>(read + chunk * from.part_bytes);
  }
#pragma unroll
  for (int r = 0; r < kGatherRounds; ++r) {
    const int chunk = first + r * kGatherChunks;
    if (chunk < chunks) *reinterpret_cast<uint4*>(write + chunk * out.part_bytes) = words[r];
  }
  if (blockIdx.y == 0 && t < 8 * kGroupRows && unit == 0) out.row_scales[row] = source >= 0 ? from.row_scales[source] : 1.0f;
}

}  // namespace

void PackAlignedInputs(Context& context, const PackInputsParams& p, const PackedInputs& packed) {
  const int64_t width = p.problems * p.cols;
  DI_CHECK(p.form.aligned && p.cols % kAlignedChunkCols == 0 && width <= kAlignedColsMax && !(p.gated && p.problems > 1));
  const auto rows = static_cast<unsigned>((p.rows + kGroupRows - 1) / kGroupRows * kGroupRows);
  const int64_t units = width / kUnit, rounds = (units + kThreadsMax - 1) / kThreadsMax;
  const auto run = [&]<int kRounds, int kRows>() {
    const int64_t threads = ((units + kRounds - 1) / kRounds + kWarp - 1) / kWarp * kWarp;
    LaunchAfter(context, PackAlignedKernel<kRounds, kRows>, rows / kRows, static_cast<unsigned>(threads), 0, p, LoadsVectors(p), packed);
  };
  constexpr unsigned kManyRows = 8192;
  if (rounds <= 1 && rows >= kManyRows) return run.template operator()<1, 2>();
  if (rounds <= 1) return run.template operator()<1, 1>();
  if (rounds <= 2) return run.template operator()<2, 1>();
  if (rounds <= 4) return run.template operator()<4, 1>();
  run.template operator()<kRoundsMax, 1>();
}

PackedInputs GatherAlignedInputs(Context& context, const PackedInputs& from, int64_t chunks, const int32_t* row_map, int64_t rows) {
  DI_CHECK(rows % kGroupRows == 0);
  const PackedInputs to = RoomForInputs(context, rows, chunks, {.activations = Activations::kFp8, .aligned = true});
  if (to.data == nullptr || rows == 0) return to;
  constexpr int64_t kBlockChunks = kGatherChunks * kGatherRounds;
  const dim3 grid(static_cast<unsigned>(rows / kGroupRows), static_cast<unsigned>((chunks + kBlockChunks - 1) / kBlockChunks));
  LaunchAfter(context, GatherAlignedKernel, grid, kThreads, 0, from, row_map, static_cast<int>(chunks), to);
  return to;
}

}  // namespace deepinfer::backend::cuda
