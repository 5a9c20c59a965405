// SPDX-License-Identifier: Apache-2.0
// Linears, and what they share with the experts: how an input is prepared for a matrix.
#include <algorithm>

#include "backend/cpu/ops.h"
#include "core/check.h"
#include "numeric/quantize.h"

namespace deepinfer::backend::cpu {
namespace {

// Rows that are multiplied together, so that their inputs stay in the second-level cache while the weights pass by.
int64_t RowChunk(int64_t cols) {
  constexpr int64_t kInputBytes = 1 << 20;
  return std::clamp<int64_t>(kInputBytes / (cols * 4), 48, 1024);
}

bool HasBlocks(WeightFormat format) { return format != WeightFormat::kF32 && format != WeightFormat::kBf16; }

}  // namespace

void Context::For(int64_t n, int64_t work_each, FunctionRef<void(int, int64_t, int64_t)> task) {
  if (n <= 0) return;
  if (n * work_each < kSerialWork) return task(0, 0, n);
  pool.For(n, 1, task);
}

bool NeedsPreparation(const Matrix& w, Activations activations) {
  return w.format != WeightFormat::kF32 || activations != Activations::kFp32 || w.cols % 32 != 0;
}

void PrepareInput(const Context& context, const Matrix& w, Activations activations, const float* x, int64_t n, float* out) {
  activations = EffectiveActivations(activations, w);
  if (activations == Activations::kBf16) {
    context.kernels.round_bf16(x, n, out);
    x = out;
  } else if (activations == Activations::kFp8) {
    if (x != out) std::copy_n(x, n, out);
    numeric::RoundTripFp8(out, static_cast<int>(n));
    x = out;
  }
  context.kernels.order_columns(w, x, n, out);
}

void Linear(Context& context, const LinearParams& p) {
  if (p.rows == 0) return;
  const int64_t cols = p.w.cols, outputs = p.w.rows, group_outputs = outputs / p.groups;
  DI_CHECK(group_outputs * p.groups == outputs && (!HasBlocks(p.w.format) || cols % 32 == 0));
  Arena& shared = context.shared;
  shared.Reset();
  const float** x = shared.Take<const float*>(p.groups * p.rows);  // [groups][rows]
  float** y = shared.Take<float*>(p.rows);
  const bool prepare = NeedsPreparation(p.w, p.activations);
  const int64_t width = PaddedColumns(cols);
  float* prepared = prepare ? shared.Take<float>(p.rows * p.groups * width) : nullptr;
  context.For(p.rows, prepare ? p.groups * cols : 1, [&](int, int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      y[r] = p.y + r * p.y_stride;
      for (int64_t g = 0; g < p.groups; ++g) {
        const float* in = p.x + r * p.x_stride + g * cols;
        if (prepare) {
          float* out = prepared + (r * p.groups + g) * width;
          PrepareInput(context, p.w, p.activations, in, cols, out);
          in = out;
        }
        x[g * p.rows + r] = in;
      }
    }
  });

  const auto multiply = [&](int thread, int64_t row, int64_t rows, int64_t out_begin, int64_t out_end) {
    Arena& arena = context.arena(thread);
    arena.Reset();
    DotArgs args = {.w = &p.w, .out_begin = 0, .out_end = 0, .rows = 0, .x = nullptr, .y = nullptr, .y_begin = 0,
                    .panel = arena.Take<float>(PanelFloats(cols))};
    const int64_t chunk = RowChunk(cols);
    for (int64_t r = row; r < row + rows; r += chunk) {
      args.rows = std::min(chunk, row + rows - r);
      args.y = y + r;
      for (int64_t out = out_begin; out < out_end;) {
        const int64_t group = out / group_outputs;
        args.out_begin = out;
        args.out_end = out = std::min(out_end, (group + 1) * group_outputs);
        args.x = x + group * p.rows + r;
        context.kernels.dot(args);
      }
    }
  };
  // Threads share out the weights where there are enough of them, else the rows.
  const int threads = context.pool.size();
  if (p.rows * outputs * cols < kSerialWork) {
    multiply(0, 0, p.rows, 0, outputs);
  } else if (outputs >= 32 * threads || p.rows < 2 * threads) {
    context.pool.For(outputs, 4, [&](int thread, int64_t begin, int64_t end) {
      multiply(thread, 0, p.rows, begin, end);
    });
  } else {
    context.pool.For(p.rows, 1, [&](int thread, int64_t begin, int64_t end) {
      multiply(thread, begin, end - begin, 0, outputs);
    });
  }
}

}  // namespace deepinfer::backend::cpu
