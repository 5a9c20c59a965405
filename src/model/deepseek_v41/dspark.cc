// SPDX-License-Identifier: Apache-2.0
// The stages are layers of the trunk's kind without a compressed branch, so a block is a forward pass of a small Model
// (ModelOptions::draft_block). Here are what comes before it, the context keys, and what comes after it, the heads.
#include "model/deepseek_v41/dspark.h"

#include <algorithm>

#include "core/check.h"

namespace deepinfer::model::deepseek_v41 {

using backend::Activations;
using backend::Buffer;
using backend::WindowCache;

struct DraftModel::Impl {
  const checkpoint::DraftConfig draft;
  const checkpoint::ModelConfig config;  // of the stages
  const DraftWeights& weights;
  backend::Backend& dev;
  const DraftOptions options;

  std::unique_ptr<Model> stages;
  // Context.
  Buffer tap_rows, positions, requests, taps, projected, kv, rope;
  // Heads.
  Buffer previous, markov, markov_logits, markov_confidence, confidence;
  float* logits = nullptr;  // the Markov terms are added in place, in the stages' scratch memory
  int64_t num_anchors = 0;
  int64_t drafts = 0;  // of the block in hand
  int64_t next = 0;
  int64_t scratch_bytes = 0;

  Impl(const checkpoint::ModelConfig& trunk, const DraftWeights& w, backend::Backend& b, const DraftOptions& o)
      : draft(trunk.draft), config(DraftStackConfig(trunk)), weights(w), dev(b), options(o) {}

  int64_t tap_width() const { return static_cast<int64_t>(draft.target_layers.size()) * config.hidden_size; }
  Status Allocate();
  void Linear(int64_t rows, const Matrix& w, const float* x, float* y, Activations activations = Activations::kFp32);
  void Add(int64_t rows, int64_t dim, const float* x, float* y, int64_t y_stride);
  // Uploads host values to a buffer of the device.
  void Put(std::span<const int32_t> values, const Buffer& to) {
    dev.CopyToDevice(to.data(), values.data(), values.size_bytes());
  }
  // The setting, as far as it concerns w (forward.cc, ActivationsOf).
  Activations ActivationsOf(const Matrix& w) const {
    return options.activations == Activations::kFp8 && w.scale == nullptr ? Activations::kFp32 : options.activations;
  }
};

Status DraftModel::Impl::Allocate() {
  const int64_t block_rows = options.requests_max * draft.block_size;
  DI_ASSIGN_OR_RETURN(stages, Model::Create(config, weights.stack, dev,
                                            {.rows_max = block_rows,
                                             .logit_rows_max = block_rows,
                                             .activations = options.activations,
                                             .draft_block = draft.block_size}));
  scratch_bytes = stages->scratch_bytes();
  const int64_t context = options.context_rows_max, anchors = options.requests_max;
  constexpr int64_t kValue = sizeof(float);
  const std::pair<Buffer*, int64_t> buffers[] = {
      {&tap_rows, context},
      {&positions, context},
      {&requests, context},
      {&taps, context * tap_width()},
      {&projected, context * config.hidden_size},
      {&kv, context * config.head_dim},
      {&rope, context * config.rope_dim},
      {&previous, anchors},
      {&markov, anchors * draft.markov_rank},
      {&markov_logits, anchors * config.vocab_size},
      {&markov_confidence, anchors},
      {&confidence, block_rows},
  };
  for (const auto& [buffer, values] : buffers) {
    DI_ASSIGN_OR_RETURN(*buffer, dev.Allocate(static_cast<size_t>(values * kValue)));
    scratch_bytes += values * kValue;
  }
  return Status();
}

void DraftModel::Impl::Linear(int64_t rows, const Matrix& w, const float* x, float* y, Activations activations) {
  dev.Linear({.rows = rows, .w = w, .activations = activations, .x = x, .x_stride = w.cols, .y = y, .y_stride = w.rows});
}

void DraftModel::Impl::Add(int64_t rows, int64_t dim, const float* x, float* y, int64_t y_stride) {
  dev.Add({.rows = rows, .dim = dim, .x = x, .x_stride = dim, .y = y, .y_stride = y_stride});
}

DraftModel::DraftModel(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
DraftModel::~DraftModel() = default;
int64_t DraftModel::num_stages() const { return impl_->config.num_layers; }
int64_t DraftModel::block_size() const { return impl_->draft.block_size; }
const float* DraftModel::logits() const { return impl_->logits; }
const float* DraftModel::confidence() const { return impl_->confidence.as<float>(); }
int64_t DraftModel::scratch_bytes() const { return impl_->scratch_bytes; }

Result<std::unique_ptr<DraftModel>> DraftModel::Create(const checkpoint::ModelConfig& config, const DraftWeights& weights,
                                                       backend::Backend& backend, const DraftOptions& options) {
  DI_CHECK(config.draft.present() && options.context_rows_max > 0 && options.requests_max > 0);
  auto impl = std::make_unique<Impl>(config, weights, backend, options);
  DI_RETURN_IF_ERROR(impl->Allocate().In("scratch memory of the draft model"));
  return std::unique_ptr<DraftModel>(new DraftModel(std::move(impl)));
}

// Context rows pass no attn_norm, unlike the rows of a block: main_norm stands for it (spec/dspark.md 3.3).
void DraftModel::StoreContext(const DraftContext& rows, std::span<const WindowCache> windows) {
  Impl& m = *impl_;
  const auto n = static_cast<int64_t>(rows.tap_rows.size());
  DI_CHECK(n <= m.options.context_rows_max && rows.positions.size() == rows.tap_rows.size() &&
           rows.requests.size() == rows.tap_rows.size() && static_cast<int64_t>(windows.size()) == num_stages());
  const auto eps = static_cast<float>(m.config.rms_norm_eps);
  m.Put(rows.tap_rows, m.tap_rows);
  m.Put(rows.positions, m.positions);
  m.Put(rows.requests, m.requests);
  m.dev.GatherRows({.rows = n,
                    .row_bytes = m.tap_width() * static_cast<int64_t>(sizeof(float)),
                    .src = rows.taps,
                    .index = m.tap_rows.as<int32_t>(),
                    .dst = m.taps.data()});
  m.Linear(n, m.weights.main_proj, m.taps.as<float>(), m.projected.as<float>(), m.ActivationsOf(m.weights.main_proj));
  m.dev.RmsNorm({.rows = n,
                 .dim = m.config.hidden_size,
                 .x = m.projected.as<float>(),
                 .x_stride = m.config.hidden_size,
                 .weight = m.weights.main_norm.data(),
                 .eps = eps,
                 .y = m.projected.as<float>()});
  m.dev.RopeTable({.rows = n,
                   .pairs = static_cast<int32_t>(m.config.rope_dim / 2),
                   .positions = m.positions.as<int32_t>(),
                   .inv_freq = m.weights.stack.rope_plain.data(),
                   .table = m.rope.as<float>()});
  for (size_t s = 0; s < windows.size(); ++s) {
    const AttentionWeights& w = m.weights.stack.layers[s].attn;
    m.Linear(n, w.wkv, m.projected.as<float>(), m.kv.as<float>(), m.ActivationsOf(w.wkv));
    m.dev.StoreWindow({.rows = n,
                       .rope_dim = m.config.rope_dim,
                       .kv = m.kv.as<float>(),
                       .kv_stride = m.config.head_dim,
                       .norm_weight = w.kv_norm.data(),
                       .norm_eps = eps,
                       .table = m.rope.as<float>(),
                       .positions = m.positions.as<int32_t>(),
                       .requests = m.requests.as<int32_t>(),
                       .cache = windows[s]});
  }
}

void DraftModel::RunBlock(std::span<const DraftAnchor> anchors, std::span<const WindowCache> windows, int64_t drafts) {
  Impl& m = *impl_;
  DI_CHECK(static_cast<int64_t>(anchors.size()) <= m.options.requests_max &&
           static_cast<int64_t>(windows.size()) == num_stages() && drafts > 0 && drafts <= block_size());
  m.num_anchors = static_cast<int64_t>(anchors.size());
  m.drafts = drafts;
  m.next = 0;
  const auto block = static_cast<size_t>(block_size()), stages = windows.size(), rows = anchors.size() * block;
  const std::vector<int32_t> run_from(stages + 1);
  std::vector<int32_t> ids(rows, static_cast<int32_t>(m.draft.noise_token_id)), floors(anchors.size() * stages), wanted;
  std::vector<Segment> segments;
  for (size_t r = 0; r < anchors.size(); ++r) {
    const DraftAnchor& anchor = anchors[r];
    ids[r * block] = anchor.token;
    std::fill_n(floors.begin() + static_cast<std::ptrdiff_t>(r * stages), stages, anchor.floor);
    segments.push_back({.request = anchor.request,
                        .begin = anchor.position,
                        .end = anchor.position + static_cast<int32_t>(block),
                        .run_from = run_from,
                        .window_floor = std::span(floors).subspan(r * stages, stages)});
    for (size_t j = 0; j < static_cast<size_t>(drafts); ++j) wanted.push_back(static_cast<int32_t>(r * block + j));
  }
  const Step step{.segments = segments, .tokens = ids, .ids = ids, .logit_rows = wanted};
  m.logits = m.stages->Forward(step, {.windows = {windows.begin(), windows.end()}});
  m.Linear(static_cast<int64_t>(wanted.size()), m.weights.confidence_hidden, m.stages->states(), m.confidence.as<float>());
}

void DraftModel::Next(std::span<const int32_t> previous) {
  Impl& m = *impl_;
  const int64_t n = m.num_anchors, vocab = m.config.vocab_size;
  DI_CHECK(static_cast<int64_t>(previous.size()) == n && m.next < m.drafts);
  m.Put(previous, m.previous);
  m.dev.Embed({.rows = n,
               .streams = 1,
               .ids = m.previous.as<int32_t>(),
               .table = m.weights.markov_embed,
               .override_rows = nullptr,
               .use_override = nullptr,
               .x = m.markov.as<float>()});
  m.Linear(n, m.weights.markov_head, m.markov.as<float>(), m.markov_logits.as<float>());
  m.Add(n, vocab, m.markov_logits.as<float>(), m.logits + m.next * vocab, m.drafts * vocab);
  m.Linear(n, m.weights.confidence_markov, m.markov.as<float>(), m.markov_confidence.as<float>());
  m.Add(n, 1, m.markov_confidence.as<float>(), m.confidence.as<float>() + m.next, m.drafts);
  ++m.next;
}

}  // namespace deepinfer::model::deepseek_v41
