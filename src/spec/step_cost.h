// SPDX-License-Identifier: Apache-2.0
// How long a step takes, learnt from steps: a function of its rows, of which kind they are, and of how much context they
// read. Nothing is assumed of the machine but that more rows never take less time.
//
// For each number of decode rows (exact up to 16, then in ranges of an eighth) the last few times are kept, and their
// lower quartile counts: what disturbs a step makes it longer. Context and prompt rows have one price each, fitted over all
// of them. Numbers of rows that were never seen lie on lines between those that were.
// Plain data; no allocation after construction; one thread at a time.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace deepinfer::spec {

struct StepShape {
  int32_t rows = 0;         // decode rows, drafts included
  int32_t prompt_rows = 0;
  double context = 0;       // sum over the decode rows of the positions before them
};

class StepCost {
 public:
  StepCost();

  void Observe(const StepShape& shape, double seconds);
  // Positive; before the first observation every row costs the same.
  double Seconds(const StepShape& shape) const;
  // out[n] = seconds with n more rows of `context_per_row`; never decreases.
  void Table(const StepShape& shape, double context_per_row, std::span<double> out) const;

 private:
  static constexpr int kSamples = 15;
  struct Cell {
    int32_t count = 0;  // of all time
    std::array<double, kSamples> seconds{}, rows{}, context{};  // rings
    double usual_seconds = 0, mean_rows = 0, mean_context = 0;  // seconds: less the context's price
  };
  struct Line {  // seconds = y + slope * (rows - x), for rows below `end`
    double x = 0, y = 0, slope = 0, end = 0;
  };
  static int CellOf(int32_t rows);
  Line LineAt(double rows) const;
  void Refresh(Cell* cell) const;
  void FitContext(const Cell& cell, double seconds, double context);

  std::vector<Cell> cells_;
  double prompt_row_ = 0;                     // seconds
  double context_price_ = 0;                  // seconds for each position read
  double context_xx_ = 0, context_xy_ = 0;    // decayed sums behind it
};

}  // namespace deepinfer::spec
