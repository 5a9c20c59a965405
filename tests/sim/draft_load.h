// SPDX-License-Identifier: Apache-2.0
// Speculation under load without a model: requests whose drafts are accepted as the published model's are, on a machine of
// the published model's cost shape, under fixed draft lengths or under confidence scheduling (spec/confidence.h,
// spec/row_choice.h). Deterministic by seed; one thread.
#pragma once

#include <cstdint>

namespace deepinfer::sim {

// Seconds of a decode step of the published model with `rows` rows in all on eight GPUs with expert parallelism:
// a fixed part (attention weights, launches, exchange latency), the experts that are read (each of 384 is touched
// by a row with probability 6/384), and the arithmetic of each row. Sizes and bandwidths: docs/drafts.md.
double StepSeconds(double rows);
// Of the draft block of so many requests.
double DraftSeconds(double requests);

struct DraftLoad {
  int32_t requests = 1;
  int32_t fixed = -1;  // drafts verified for each request; -1: chosen by confidence
  int32_t steps = 1500;
  uint64_t seed = 1;
};

struct DraftLoadResult {
  double tokens_per_second = 0;
  double tokens_per_step = 0;   // of a request: 1 + drafts that stood
  double drafts_verified = 0;   // of a request, per step
};

DraftLoadResult RunDraftLoad(const DraftLoad& load);

}  // namespace deepinfer::sim
