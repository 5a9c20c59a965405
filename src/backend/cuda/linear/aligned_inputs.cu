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

// All threads of the block must call.
__device__ int BlockMax(int value) {
  __shared__ int warps[kThreadsMax / kWarp];
  value = __reduce_max_sync(kAllLanes, value);
  if (threadIdx.x % kWarp == 0) warps[threadIdx.x / kWarp] = value;
  __syncthreads();
  int most = warps[0];
  for (int w = 1; w < static_cast<int>(blockDim.x) / kWarp; ++w) most = max(most, warps[w]);
  return most;
}

// One block a row, which its threads hold.
template <int kRounds>
__global__ void __launch_bounds__(kThreadsMax) PackAlignedKernel(PackInputsParams p, bool vectors, PackedInputs out) {
  ptx::GridBegin();
  const int64_t row = blockIdx.x, source = SourceRow(p, row);
  const int t = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  const int units = static_cast<int>(p.problems * p.cols / kUnit);
  float v[kRounds][kUnit];
#pragma unroll
  for (int r = 0; r < kRounds; ++r) {
    const int unit = r * threads + t;
    LoadUnit(p, row, source * p.x_stride + unit * kUnit, source >= 0 && unit < units ? kUnit : 0, vectors, v[r]);
  }
  uint2 codes[kRounds];
  int scales[kRounds], most = 0;
#pragma unroll
  for (int r = 0; r < kRounds; ++r) {
    scales[r] = BlockScale(v[r]);
    const float by = ScaleInverse(scales[r]);
    codes[r] = make_uint2(EncodeE4m3(v[r][0] * by, v[r][1] * by, v[r][2] * by, v[r][3] * by),
                          EncodeE4m3(v[r][4] * by, v[r][5] * by, v[r][6] * by, v[r][7] * by));
    most = max(most, scales[r]);
  }
  most = BlockMax(most);
  if (t == 0) out.row_scales[row] = numeric::E8m0ToFloat(static_cast<uint8_t>(most));
#pragma unroll
  for (int r = 0; r < kRounds; ++r) {
    const int unit = r * threads + t;
    if (unit >= units) return;
    *reinterpret_cast<uint2*>(out.data + AlignedInputPlace(row, unit * kUnit, out.part_bytes)) =
        make_uint2(AlignE4m3(codes[r].x, scales[r], most), AlignE4m3(codes[r].y, scales[r], most));
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
  const auto run = [&]<int kRounds>() {
    const int64_t threads = ((units + kRounds - 1) / kRounds + kWarp - 1) / kWarp * kWarp;
    LaunchAfter(context, PackAlignedKernel<kRounds>, rows, static_cast<unsigned>(threads), 0, p, LoadsVectors(p), packed);
  };
  if (rounds <= 1) return run.template operator()<1>();
  if (rounds <= 2) return run.template operator()<2>();
  if (rounds <= 4) return run.template operator()<4>();
  run.template operator()<kRoundsMax>();
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
