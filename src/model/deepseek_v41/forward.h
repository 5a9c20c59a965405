// SPDX-License-Identifier: Apache-2.0
// The forward pass of the text model as calls of backend ops (spec/model.md). Written once; it never names a backend.
//
// A Model owns the scratch memory of one pass over at most rows_max rows and is used by one thread at a time. It refers
// to weights and backend, which must outlive it. Nothing is allocated after Create but the small host lists of a step.
#pragma once

#include <memory>
#include <span>

#include "backend/api/backend.h"
#include "checkpoint/config.h"
#include "model/deepseek_v41/step.h"
#include "model/deepseek_v41/weights.h"

namespace deepinfer::model::deepseek_v41 {

struct ModelOptions {
  int64_t rows_max = 512;        // rows of a step
  int64_t logit_rows_max = 512;  // rows of a step whose logits can be had
  backend::Activations activations = backend::Activations::kFp32;
  // Keep what the draft reads of each row (Model::draft_taps). REQUIRES: the config has a draft.
  bool draft_taps = false;
  // Steps of at most so many rows that run in every layer are recorded, where the backend can (recorded.cc).
  int64_t recorded_rows_max = 256;
  // Not 0: every segment is a draft block of so many rows (dspark.h). A row sees the `window` window rows before the block
  // and the whole block, and Model::states is kept. REQUIRES: no layer has a compressed branch.
  int64_t draft_block = 0;
};

// What the draft reads of a pass: for each row that reached the last tapped layer, the mean of the streams that entered
// each of the target layers, after the Engram (spec/dspark.md 3.1).
struct DraftTaps {
  std::span<const int32_t> rows;  // batch rows, ascending
  const float* values = nullptr;  // device [first + rows, target layers, hidden]; the same few addresses in every step
  int32_t first = 0;              // values row of rows[0]
};

class Model {
 public:
  // Reserves the scratch memory on the weights' backend. Errors: kResourceExhausted.
  static Result<std::unique_ptr<Model>> Create(const checkpoint::ModelConfig& config, const Weights& weights,
                                               backend::Backend& backend, const ModelOptions& options);
  ~Model();

  // Queues the pass: updates the caches and leaves the logits of step.logit_rows, fp32 [logit_rows, vocab], in the
  // returned device buffer, which the caller may change and the next call overwrites. REQUIRES: the step is
  // consistent (step.h) and within the limits of the options.
  float* Forward(const Step& step, const Caches& caches, const TapFn& tap = nullptr);

  // Logits of other rows of the last Forward, in the same buffer, whose content is lost. Bounded memory for any number of
  // rows: ask for some at a time. REQUIRES: the step said more_logits; `rows` as Step::logit_rows.
  float* Logits(std::span<const int32_t> rows);

  // Of the last Forward; overwritten by the next. REQUIRES: options.draft_taps.
  DraftTaps draft_taps() const;
  // Of the last Forward: the streams of step.logit_rows at the end of the stack, summed but not normed, device
  // [logit_rows, hidden]. REQUIRES: options.draft_block > 0.
  const float* states() const;

  // The numbers of rows that steps are recorded for, ascending; none where the backend does not record.
  std::vector<int64_t> recorded_sizes() const;
  int64_t scratch_bytes() const;

 private:
  struct Impl;
  explicit Model(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace deepinfer::model::deepseek_v41
