// SPDX-License-Identifier: Apache-2.0
// What the files of the draft model share.
//   dspark.cc        context keys, blocks, and heads one draft at a time
//   dspark_chain.cc  heads and draws of a whole block on the device
#pragma once

#include <map>
#include <tuple>
#include <utility>

#include "model/deepseek_v41/dspark.h"
#include "model/deepseek_v41/recorded_ops.h"
#include "model/deepseek_v41/step_tables.h"

namespace deepinfer::model::deepseek_v41 {

using backend::Activations;
using backend::Buffer;
using backend::WindowCache;

struct RecordedContext {
  RecordedOps ops;
  std::vector<WindowCache> windows;  // that the ops write
};

struct DraftModel::Impl {
  const checkpoint::DraftConfig draft;
  const checkpoint::ModelConfig config;  // of the stages
  const DraftWeights& weights;
  backend::Backend& dev;
  const DraftOptions options;

  std::unique_ptr<Model> stages;
  // Context.
  StepTables context_tables;
  Buffer taps, projected, kv, rope;
  std::map<std::pair<int64_t, const float*>, RecordedContext> recorded_context;  // by rows and where their taps lie
  // Heads.
  Buffer previous, markov, markov_logits, markov_confidence, confidence;
  float* logits = nullptr;  // the Markov terms are added in place, in the stages' scratch memory
  int64_t num_anchors = 0;
  int64_t drafts = 0;  // of the block in hand
  int64_t next = 0;
  // A chain of draws on the device.
  StepTables chain_tables;
  Buffer tokens;
  Buffer adjusted_token;  // [anchors]: an adjusted draw, -1 where there is no token
  Buffer token_or_zero;   // [1 + vocab]: 0, then every token
  std::map<std::tuple<int64_t, int64_t, bool>, RecordedOps> recorded_chains;  // by anchors, drafts, and whether draws are plain
  std::vector<int32_t> padded;
  std::vector<DraftAnchor> padded_anchors;
  std::vector<backend::SampleDraw> padded_draws;
  std::vector<backend::AdjustedDraw> padded_adjusted;
  int64_t first_anchor = 0;  // of the chain: those before it are padding
  int64_t scratch_bytes = 0;

  Impl(const checkpoint::ModelConfig& trunk, const DraftWeights& w, backend::Backend& b, const DraftOptions& o)
      : draft(trunk.draft), config(DraftStackConfig(trunk)), weights(w), dev(b), options(o) {}

  int64_t tap_width() const { return static_cast<int64_t>(draft.target_layers.size()) * config.hidden_size; }
  Status Allocate();
  int64_t ChainTablesBytes() const;
  Status AllocateChain();
  // Fills padded_draws or padded_adjusted: draws of `real` anchors, those before first_anchor as the first one's.
  void PadDraws(const ChainDraws& draws, int64_t real);
  // The smallest of `sizes`, ascending, for n rows that is at most `most`; 0: n rows are not recorded.
  int64_t RecordedSize(std::span<const int64_t> sizes, int64_t n, int64_t most) const;
  void ProjectContext(const DraftContext& rows, int64_t n, std::span<const WindowCache> windows);
  // Where ProjectContext finds its tables.
  struct ContextTables {
    const int32_t *tap_rows = nullptr, *positions = nullptr, *requests = nullptr;
  } context;
  void RunStages(std::span<const DraftAnchor> anchors, std::span<const WindowCache> windows, int64_t count);
  void HiddenConfidence();
  // The logits of draft j behind the tokens `ids` [anchors], device, whose Markov embeddings are left in `embedded`.
  void Heads(int64_t j, const int32_t* ids, float* embedded);
  // The Markov term of the confidences of `count` drafts from `first` on, of the embeddings at `markov`.
  void MarkovConfidence(int64_t first, int64_t count);
  void Linear(int64_t rows, const Matrix& w, const float* x, float* y, Activations activations = Activations::kFp32);
  void Add(int64_t rows, int64_t dim, const float* x, float* y, int64_t y_stride);
  Activations ActivationsOf(const Matrix& w) const { return EffectiveActivations(options.activations, w); }
};

}  // namespace deepinfer::model::deepseek_v41
