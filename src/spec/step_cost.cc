// SPDX-License-Identifier: Apache-2.0
#include "spec/step_cost.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace deepinfer::spec {
namespace {

constexpr int kExact = 16;        // numbers of rows with a cell of their own
constexpr int kPerDoubling = 6;   // cells for each doubling above
constexpr int kDoublings = 12;
// Before anything else is known, so much of a step's time is proportional to its rows.
constexpr double kRowShare = 0.7;
constexpr double kFirstGuess = 1e-3;
constexpr double kSecondsMin = 1e-9;
constexpr double kDecay = 0.99;
// Where contexts hardly differ there is nothing to learn of their price but noise: it stays near 0 until the squares of
// the differences add up to this.
constexpr double kContextAnchor = 50.0 * 256 * 256;

}  // namespace

StepCost::StepCost() : cells_(kExact + 1 + kPerDoubling * kDoublings) {}

int StepCost::CellOf(int32_t rows) {
  if (rows <= kExact) return std::max(rows, 0);
  const int above = static_cast<int>(kPerDoubling * std::log2(static_cast<double>(rows) / kExact));
  return kExact + std::min(above, kPerDoubling * kDoublings - 1) + 1;
}

void StepCost::Refresh(Cell* cell) const {
  const auto n = static_cast<size_t>(std::min(cell->count, kSamples));
  std::array<double, kSamples> seconds{};
  cell->mean_rows = cell->mean_context = 0;
  for (size_t i = 0; i < n; ++i) {
    seconds[i] = cell->seconds[i] - context_price_ * cell->context[i];
    cell->mean_rows += cell->rows[i] / static_cast<double>(n);
    cell->mean_context += cell->context[i] / static_cast<double>(n);
  }
  const auto quarter = seconds.begin() + static_cast<std::ptrdiff_t>(n / 4);
  std::nth_element(seconds.begin(), quarter, seconds.begin() + static_cast<std::ptrdiff_t>(n));
  cell->usual_seconds = std::max(*quarter, 0.0);
}

// Steps of one cell differ in their context alone: what a sample costs more than the oldest one kept tells its price.
// Steps far off it were disturbed.
void StepCost::FitContext(const Cell& cell, double seconds, double context) {
  if (cell.count < kSamples) return;
  const auto oldest = static_cast<size_t>(cell.count % kSamples);
  const double dx = context - cell.context[oldest], dy = seconds - cell.seconds[oldest];
  if (std::fabs(dy) > 0.5 * cell.seconds[oldest]) return;
  context_xx_ = context_xx_ * kDecay + dx * dx;
  context_xy_ = context_xy_ * kDecay + dx * dy;
  context_price_ = std::max(0.0, context_xy_ / (context_xx_ + kContextAnchor));
}

void StepCost::Observe(const StepShape& shape, double seconds) {
  if (!(seconds > 0)) return;
  if (shape.prompt_rows > 0) {
    const double others = shape.rows > 0 ? Seconds({.rows = shape.rows, .context = shape.context}) : 0;
    const double row = std::max(0.0, seconds - others) / shape.prompt_rows;
    prompt_row_ = prompt_row_ == 0 ? row : prompt_row_ + 0.1 * (std::min(row, 3 * prompt_row_) - prompt_row_);
    return;
  }
  Cell& cell = cells_[static_cast<size_t>(CellOf(shape.rows))];
  FitContext(cell, seconds, shape.context);
  const auto at = static_cast<size_t>(cell.count % kSamples);
  cell.seconds[at] = seconds;
  cell.rows[at] = shape.rows;
  cell.context[at] = shape.context;
  ++cell.count;
  Refresh(&cell);
}

StepCost::Line StepCost::LineAt(double rows) const {
  const Cell* below = nullptr;
  const Cell* before = nullptr;  // the one below that
  const Cell* above = nullptr;
  for (const Cell& cell : cells_) {
    if (cell.count == 0) continue;
    if (cell.mean_rows > rows) {
      above = &cell;
      break;
    }
    before = below;
    below = &cell;
  }
  constexpr double kNoEnd = std::numeric_limits<double>::infinity();
  if (below == nullptr && above == nullptr) return {.y = kFirstGuess, .slope = kFirstGuess * kRowShare, .end = kNoEnd};
  const auto slope = [](const Cell& a, const Cell& b) {
    return std::max(0.0, b.usual_seconds - a.usual_seconds) / (b.mean_rows - a.mean_rows);
  };
  const Cell& one = below != nullptr ? *below : *above;
  Line line{.x = one.mean_rows, .y = one.usual_seconds, .end = above != nullptr ? above->mean_rows : kNoEnd};
  if (below != nullptr && above != nullptr) {
    line.slope = slope(*below, *above);
  } else if (before != nullptr) {
    line.slope = slope(*before, *below);
  } else {
    line.slope = one.usual_seconds * kRowShare / std::max(one.mean_rows, 1.0);
  }
  return line;
}

double StepCost::Seconds(const StepShape& shape) const {
  double seconds = 0;
  Table(shape, 0, std::span(&seconds, 1));
  return seconds;
}

void StepCost::Table(const StepShape& shape, double context_per_row, std::span<double> out) const {
  double rows = shape.rows;
  double extra = context_price_ * shape.context + prompt_row_ * shape.prompt_rows;
  Line line = LineAt(rows);
  for (size_t n = 0; n < out.size(); ++n) {
    if (rows >= line.end) line = LineAt(rows);
    out[n] = std::max(line.y + line.slope * (rows - line.x) + extra, kSecondsMin);
    rows += 1;
    extra += context_price_ * context_per_row;
  }
  // More rows never take less time: where they seem to, the fewer were disturbed.
  for (size_t n = out.size(); n-- > 1;) out[n - 1] = std::min(out[n - 1], out[n]);
}

}  // namespace deepinfer::spec
