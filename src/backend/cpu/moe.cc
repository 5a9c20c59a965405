// SPDX-License-Identifier: Apache-2.0
// The router and the experts (spec/model.md 5).
//
// Experts: the (row, expert) pairs, the shared expert's included, are sorted by expert into *slots*. Two passes over
// tasks of one expert and a run of its outputs follow, each reading every weight once for all rows that chose the expert:
//   h[slot] = weight * silu(w1 x) * (w3 x), rounded and ordered as w2 wants it;      z[slot] = w2 h[slot]
// Last, each row adds its slots, by ascending expert, then the shared one. Threads take tasks as they come free: which
// thread computes a slot changes nothing.
#include <algorithm>
#include <atomic>
#include <cmath>

#include "backend/cpu/ops.h"
#include "core/check.h"

namespace deepinfer::backend::cpu {
namespace {

// Outputs of one task: a multiple of 32, so that the blocks of w2's input are complete in it.
constexpr int64_t kTaskOutputs = 32;

// Rows that pass through the experts together, so that scratch has a limit: this many floats.
constexpr int64_t kScratchFloats = 16 << 20;

struct ExpertTask {
  const ExpertWeights* expert;
  int64_t slot;   // first
  int64_t slots;
  int64_t begin;  // outputs
  int64_t end;
};

class ExpertPass {
 public:
  ExpertPass(Context& context, const ExpertsParams& p, int64_t row, int64_t rows)
      : context_(context), p_(p), row_(row), rows_(rows), per_row_(p.topk + (p.has_shared ? 1 : 0)), slots_(rows * per_row_) {}

  void Run() {
    Arena& shared = context_.shared;
    shared.Reset();
    Sort();
    PrepareRows();
    h_ = shared.Take<float>(slots_ * inter_max_);
    z_ = shared.Take<float>(slots_ * p_.hidden);
    z_rows_ = shared.Take<float*>(slots_);
    h_rows_ = shared.Take<const float*>(slots_);
    for (int64_t s = 0; s < slots_; ++s) {
      h_rows_[s] = h_ + s * inter_max_;
      z_rows_[s] = z_ + s * p_.hidden;
    }
    ForTasks([](const ExpertWeights& e) { return e.w1.rows; }, 2 * p_.hidden,
             [&](int thread, const ExpertTask& task) { Inner(thread, task); });
    ForTasks([](const ExpertWeights& e) { return e.w2.rows; }, inter_max_,
             [&](int thread, const ExpertTask& task) { Outer(thread, task); });
    context_.For(rows_, per_row_ * p_.hidden, [&](int, int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) Combine(r);
    });
  }

 private:
  const ExpertWeights& Expert(int64_t e) const { return e < p_.num_experts ? p_.experts[e] : p_.shared; }

  // Counting sort: slots of expert e are [first_[e], first_[e + 1]); the shared expert comes last.
  void Sort() {
    Arena& shared = context_.shared;
    first_ = shared.Take<int64_t>(p_.num_experts + 2);
    slot_weight_ = shared.Take<float>(slots_);
    slot_of_ = shared.Take<int64_t>(slots_);
    std::fill_n(first_, p_.num_experts + 2, 0);
    const int32_t* chosen = p_.chosen + row_ * p_.topk;
    for (int64_t i = 0; i < rows_ * p_.topk; ++i) {
      DI_CHECK(chosen[i] >= 0 && chosen[i] < p_.num_experts);
      ++first_[chosen[i] + 1];
    }
    for (int64_t e = 0; e < p_.num_experts; ++e) first_[e + 1] += first_[e];
    first_[p_.num_experts + 1] = slots_;
    int64_t* next = shared.Take<int64_t>(p_.num_experts + 1);
    std::copy_n(first_, p_.num_experts + 1, next);
    for (int64_t r = 0; r < rows_; ++r) {
      for (int64_t i = 0; i < per_row_; ++i) {
        const bool is_shared = i == p_.topk;
        const int64_t slot = next[is_shared ? p_.num_experts : chosen[r * p_.topk + i]]++;
        slot_weight_[slot] = is_shared ? 1.0f : p_.weights[(row_ + r) * p_.topk + i];
        slot_of_[r * per_row_ + i] = slot;
      }
    }
    inter_max_ = 0;
    for (int64_t e = 0; e <= p_.num_experts; ++e) {
      if (first_[e] < first_[e + 1]) inter_max_ = std::max(inter_max_, PaddedColumns(Expert(e).w1.rows));
    }
  }

  // Inputs of w1 and w3, once for the routed experts (all of one format) and once for the shared one.
  void PrepareRows() {
    Arena& shared = context_.shared;
    x_rows_ = shared.Take<const float*>(slots_);
    const int64_t width = PaddedColumns(p_.hidden);
    float* routed = p_.topk > 0 && NeedsPreparation(p_.experts[0].w1, p_.activations) ? shared.Take<float>(rows_ * width) : nullptr;
    float* common = p_.has_shared && NeedsPreparation(p_.shared.w1, p_.activations) ? shared.Take<float>(rows_ * width) : nullptr;
    context_.For(rows_, (routed != nullptr || common != nullptr) ? p_.hidden * 8 : 1, [&](int, int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const float* x = p_.x + (row_ + r) * p_.hidden;
        const int64_t at = r * width;
        if (routed != nullptr) PrepareInput(context_, p_.experts[0].w1, p_.activations, x, p_.hidden, routed + at);
        if (common != nullptr) PrepareInput(context_, p_.shared.w1, p_.activations, x, p_.hidden, common + at);
        for (int64_t i = 0; i < per_row_; ++i) {
          const float* prepared = i == p_.topk ? common : routed;
          x_rows_[slot_of_[r * per_row_ + i]] = prepared != nullptr ? prepared + at : x;
        }
      }
    });
  }

  template <typename Outputs, typename Body>
  void ForTasks(const Outputs& outputs, int64_t work_each, const Body& body) {
    Arena& shared = context_.shared;
    int64_t count = 0, work = 0;
    for (int64_t e = 0; e <= p_.num_experts; ++e) {
      if (first_[e] == first_[e + 1]) continue;
      const int64_t n = outputs(Expert(e));
      count += (n + kTaskOutputs - 1) / kTaskOutputs;
      work += n * (first_[e + 1] - first_[e]) * work_each;
    }
    ExpertTask* tasks = shared.Take<ExpertTask>(count);
    int64_t t = 0;
    for (int64_t e = 0; e <= p_.num_experts; ++e) {
      if (first_[e] == first_[e + 1]) continue;
      const int64_t n = outputs(Expert(e));
      for (int64_t begin = 0; begin < n; begin += kTaskOutputs) {
        tasks[t++] = {&Expert(e), first_[e], first_[e + 1] - first_[e], begin, std::min(n, begin + kTaskOutputs)};
      }
    }
    if (work < kSerialWork) {
      for (int64_t i = 0; i < count; ++i) body(0, tasks[i]);
      return;
    }
    std::atomic<int64_t> next{0};
    context_.pool.Run([&](int thread) {
      for (int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < count;) body(thread, tasks[i]);
    });
  }

  // A run of inner channels of one expert for all its slots.
  void Inner(int thread, const ExpertTask& task) {
    const Kernels& k = context_.kernels;
    const ExpertWeights& e = *task.expert;
    const int64_t n = task.end - task.begin;
    Arena& arena = context_.arena(thread);
    arena.Reset();
    float* panel = arena.Take<float>(PanelFloats(p_.hidden));
    float* gate = arena.Take<float>(task.slots * kTaskOutputs);
    float* up = arena.Take<float>(task.slots * kTaskOutputs);
    float** y = arena.Take<float*>(task.slots);
    DotArgs args = {.w = &e.w1, .out_begin = task.begin, .out_end = task.end, .rows = task.slots,
                    .x = x_rows_ + task.slot, .y = y, .y_begin = task.begin, .panel = panel};
    for (int64_t s = 0; s < task.slots; ++s) y[s] = gate + s * kTaskOutputs;
    k.dot(args);
    for (int64_t s = 0; s < task.slots; ++s) y[s] = up + s * kTaskOutputs;
    args.w = &e.w3;
    k.dot(args);
    const bool prepare = NeedsPreparation(e.w2, p_.activations);
    for (int64_t s = 0; s < task.slots; ++s) {
      float* h = h_ + (task.slot + s) * inter_max_ + task.begin;
      k.swiglu(gate + s * kTaskOutputs, up + s * kTaskOutputs, slot_weight_[task.slot + s], p_.limit, n, h);
      if (prepare) PrepareInput(context_, e.w2, p_.activations, h, n, h);
    }
  }

  // A run of outputs of one expert for all its slots.
  void Outer(int thread, const ExpertTask& task) {
    const Matrix& w2 = task.expert->w2;
    Arena& arena = context_.arena(thread);
    arena.Reset();
    context_.kernels.dot({.w = &w2, .out_begin = task.begin, .out_end = task.end, .rows = task.slots,
                          .x = h_rows_ + task.slot, .y = z_rows_ + task.slot, .y_begin = 0,
                          .panel = arena.Take<float>(PanelFloats(w2.cols))});
  }

  void Combine(int64_t r) {
    float* y = p_.y + (row_ + r) * p_.hidden;
    std::fill_n(y, p_.hidden, 0.0f);
    for (int64_t i = 0; i < per_row_; ++i) {
      context_.kernels.add_scaled(z_rows_[slot_of_[r * per_row_ + i]], 1.0f, p_.hidden, y);
    }
    if (p_.last != nullptr) context_.kernels.add_scaled(p_.last + (row_ + r) * p_.hidden, 1.0f, p_.hidden, y);
  }

  Context& context_;
  const ExpertsParams& p_;
  const int64_t row_;      // first
  const int64_t rows_;
  const int64_t per_row_;  // slots of a row
  const int64_t slots_;
  int64_t inter_max_ = 0;  // inner channels, padded
  int64_t* first_ = nullptr;
  float* slot_weight_ = nullptr;
  int64_t* slot_of_ = nullptr;  // [rows, per_row]
  const float** x_rows_ = nullptr;
  float* h_ = nullptr;
  float* z_ = nullptr;
  const float** h_rows_ = nullptr;
  float** z_rows_ = nullptr;
};

}  // namespace

void Route(Context& context, const RouteParams& p) {
  if (p.rows == 0) return;
  const int64_t experts = p.gate.rows;
  DI_CHECK(p.topk <= experts);
  float* scores = context.mixes.Take<float>(p.rows * experts);
  Linear(context, {.rows = p.rows, .w = p.gate, .x = p.x, .x_stride = p.gate.cols, .y = scores, .y_stride = experts});
  context.For(p.rows, experts * (8 + p.topk), [&](int thread, int64_t begin, int64_t end) {
    Arena& arena = context.arena(thread);
    arena.Reset();
    float* biased = arena.Take<float>(experts);
    for (int64_t r = begin; r < end; ++r) {
      float* s = scores + r * experts;
      context.kernels.sqrt_softplus(s, experts);
      const float* bias = p.is_image != nullptr && p.is_image[r] ? p.image_bias : p.bias;
      for (int64_t e = 0; e < experts; ++e) biased[e] = std::isnan(s[e] + bias[e]) ? -INFINITY : s[e] + bias[e];
      int32_t* chosen = p.experts + r * p.topk;
      for (int64_t i = 0; i < p.topk; ++i) {
        int64_t best = -1;
        for (int64_t e = 0; e < experts; ++e) {
          if (std::isnan(biased[e])) continue;  // taken
          if (best < 0 || biased[e] > biased[best]) best = e;
        }
        chosen[i] = static_cast<int32_t>(best);
        biased[best] = NAN;
      }
      std::sort(chosen, chosen + p.topk);
      float sum = 0.0f;
      for (int64_t i = 0; i < p.topk; ++i) sum += s[chosen[i]];
      const float divisor = p.normalize && p.topk > 1 ? sum + 1e-20f : 1.0f;
      for (int64_t i = 0; i < p.topk; ++i) p.weights[r * p.topk + i] = s[chosen[i]] / divisor * p.scale;
    }
  });
  context.mixes.Reset();
}

void Experts(Context& context, const ExpertsParams& p) {
  const int64_t inter = p.topk > 0 ? p.experts[0].w1.rows : p.shared.w1.rows;
  const int64_t chunk = std::max<int64_t>(16, kScratchFloats / ((p.topk + 1) * (inter + p.hidden)));
  for (int64_t row = 0; row < p.rows; row += chunk) ExpertPass(context, p, row, std::min(chunk, p.rows - row)).Run();
}

}  // namespace deepinfer::backend::cpu
