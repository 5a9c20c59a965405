// SPDX-License-Identifier: Apache-2.0
// The stages are layers of the trunk's kind without a compressed branch, so a block is a forward pass of a small Model
// (ModelOptions::draft_block). Here are what comes before it, the context keys, and what comes after it, the heads.
#include "model/deepseek_v41/dspark.h"

#include <algorithm>

#include "core/check.h"
#include "model/deepseek_v41/dspark_impl.h"

namespace deepinfer::model::deepseek_v41 {

namespace {

// A run of context rows of a size in between is padded in front with copies of its first row, as steps are (recorded.cc).
constexpr int64_t kContextSizes[] = {1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 48, 64};

}  // namespace

Status DraftModel::Impl::Allocate() {
  const int64_t block_rows = options.requests_max * draft.block_size;
  DI_ASSIGN_OR_RETURN(stages, Model::Create(config, weights.stack, dev,
                                            {.rows_max = block_rows,
                                             .logit_rows_max = block_rows,
                                             .activations = options.activations,
                                             .draft_block = draft.block_size}));
  scratch_bytes = stages->scratch_bytes();
  const int64_t context_rows = options.context_rows_max, anchors = options.requests_max;
  constexpr int64_t kValue = sizeof(float);
  DI_ASSIGN_OR_RETURN(context_tables, StepTables::Create(dev, 3 * StepTables::Room(context_rows * kValue)));
  scratch_bytes += static_cast<int64_t>(context_tables.size_bytes());
  const std::pair<Buffer*, int64_t> buffers[] = {
      {&taps, context_rows * tap_width()},
      {&projected, context_rows * config.hidden_size},
      {&kv, context_rows * config.head_dim},
      {&rope, context_rows * config.rope_dim},
      {&previous, anchors},
      {&markov, block_rows * draft.markov_rank},
      {&markov_logits, anchors * config.vocab_size},
      {&markov_confidence, block_rows},
      {&confidence, block_rows},
  };
  for (const auto& [buffer, values] : buffers) {
    DI_ASSIGN_OR_RETURN(*buffer, dev.Allocate(static_cast<size_t>(values * kValue)));
    scratch_bytes += values * kValue;
  }
  return dev.can_sample() ? AllocateChain() : Status();
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
const float* DraftModel::confidence() const { return impl_->confidence.as<float>() + impl_->first_anchor * impl_->drafts; }
int64_t DraftModel::scratch_bytes() const { return impl_->scratch_bytes; }

Result<std::unique_ptr<DraftModel>> DraftModel::Create(const checkpoint::ModelConfig& config, const DraftWeights& weights,
                                                       backend::Backend& backend, const DraftOptions& options) {
  DI_CHECK(config.draft.present() && options.context_rows_max > 0 && options.requests_max > 0);
  auto impl = std::make_unique<Impl>(config, weights, backend, options);
  DI_RETURN_IF_ERROR(impl->Allocate().In("scratch memory of the draft model"));
  return std::unique_ptr<DraftModel>(new DraftModel(std::move(impl)));
}

// Context rows pass no attn_norm, unlike the rows of a block: main_norm stands for it (spec/dspark.md 3.3).
void DraftModel::Impl::ProjectContext(const DraftContext& rows, int64_t n, std::span<const WindowCache> windows) {
  const auto eps = static_cast<float>(config.rms_norm_eps);
  dev.GatherRows({.rows = n,
                  .row_bytes = tap_width() * static_cast<int64_t>(sizeof(float)),
                  .src = rows.taps,
                  .index = context.tap_rows,
                  .dst = taps.data()});
  Linear(n, weights.main_proj, taps.as<float>(), projected.as<float>(), ActivationsOf(weights.main_proj));
  dev.RmsNorm({.rows = n,
               .dim = config.hidden_size,
               .x = projected.as<float>(),
               .x_stride = config.hidden_size,
               .weight = weights.main_norm.data(),
               .eps = eps,
               .y = projected.as<float>()});
  dev.RopeTable({.rows = n,
                 .pairs = static_cast<int32_t>(config.rope_dim / 2),
                 .positions = context.positions,
                 .inv_freq = weights.stack.rope_plain.data(),
                 .table = rope.as<float>()});
  for (size_t s = 0; s < windows.size(); ++s) {
    const AttentionWeights& w = weights.stack.layers[s].attn;
    Linear(n, w.wkv, projected.as<float>(), kv.as<float>(), ActivationsOf(w.wkv));
    dev.StoreWindow({.rows = n,
                     .rope_dim = config.rope_dim,
                     .kv = kv.as<float>(),
                     .kv_stride = config.head_dim,
                     .norm_weight = w.kv_norm.data(),
                     .norm_eps = eps,
                     .table = rope.as<float>(),
                     .positions = context.positions,
                     .requests = context.requests,
                     .cache = windows[s]});
  }
}

int64_t DraftModel::recorded_context_rows_max() const {
  return impl_->dev.can_record() ? std::min<int64_t>(std::end(kContextSizes)[-1], impl_->options.context_rows_max) : 0;
}

int64_t DraftModel::recordings() const {
  return static_cast<int64_t>(impl_->recorded_context.size() + impl_->recorded_chains.size());
}

int64_t DraftModel::Impl::RecordedSize(std::span<const int64_t> sizes, int64_t n, int64_t most) const {
  const auto size = std::ranges::lower_bound(sizes, n);
  return dev.can_record() && size != sizes.end() && *size <= most ? *size : 0;
}

void DraftModel::StoreContext(const DraftContext& rows, std::span<const WindowCache> windows) {
  Impl& m = *impl_;
  const auto real = static_cast<int64_t>(rows.tap_rows.size());
  DI_CHECK(real <= m.options.context_rows_max && rows.positions.size() == rows.tap_rows.size() &&
           rows.requests.size() == rows.tap_rows.size() && static_cast<int64_t>(windows.size()) == num_stages());
  if (real == 0) return;
  const int64_t recorded_size = m.RecordedSize(kContextSizes, real, m.options.context_rows_max);
  const int64_t n = std::max(real, recorded_size);
  const auto add = [&](std::span<const int32_t> values) {
    m.padded.assign(static_cast<size_t>(n - real), values[0]);
    m.padded.insert(m.padded.end(), values.begin(), values.end());
    return m.context_tables.Add(std::span<const int32_t>(m.padded));
  };
  m.context_tables.Clear();
  m.context = {.tap_rows = add(rows.tap_rows), .positions = add(rows.positions), .requests = add(rows.requests)};
  m.context_tables.Upload(m.dev);
  if (recorded_size == 0) return m.ProjectContext(rows, n, windows);
  RecordedContext& recorded = m.recorded_context[{n, rows.taps}];
  if (!std::ranges::equal(recorded.windows, windows)) {
    recorded = {};
    recorded.windows.assign(windows.begin(), windows.end());
  }
  recorded.ops.Run(m.dev, [&] { m.ProjectContext(rows, n, windows); });
}

void DraftModel::Impl::RunStages(std::span<const DraftAnchor> anchors, std::span<const WindowCache> windows, int64_t count) {
  DI_CHECK(static_cast<int64_t>(anchors.size()) <= options.requests_max && static_cast<int64_t>(windows.size()) == config.num_layers &&
           count > 0 && count <= draft.block_size);
  num_anchors = static_cast<int64_t>(anchors.size());
  drafts = count;
  next = 0;
  const auto block = static_cast<size_t>(draft.block_size), layers = windows.size(), rows = anchors.size() * block;
  const std::vector<int32_t> run_from(layers + 1);
  std::vector<int32_t> ids(rows, static_cast<int32_t>(draft.noise_token_id)), floors(anchors.size() * layers), wanted;
  std::vector<Segment> segments;
  for (size_t r = 0; r < anchors.size(); ++r) {
    const DraftAnchor& anchor = anchors[r];
    ids[r * block] = anchor.token;
    std::fill_n(floors.begin() + static_cast<std::ptrdiff_t>(r * layers), layers, anchor.floor);
    segments.push_back({.request = anchor.request,
                        .begin = anchor.position,
                        .end = anchor.position + static_cast<int32_t>(block),
                        .run_from = run_from,
                        .window_floor = std::span(floors).subspan(r * layers, layers)});
    for (size_t j = 0; j < static_cast<size_t>(count); ++j) wanted.push_back(static_cast<int32_t>(r * block + j));
  }
  const Step step{.segments = segments, .tokens = ids, .ids = ids, .logit_rows = wanted};
  logits = stages->Forward(step, {.windows = {windows.begin(), windows.end()}});
}

void DraftModel::Impl::HiddenConfidence() {
  Linear(num_anchors * drafts, weights.confidence_hidden, stages->states(), confidence.as<float>());
}

void DraftModel::Impl::Heads(int64_t j, const int32_t* ids, float* embedded) {
  const int64_t n = num_anchors, vocab = config.vocab_size;
  dev.Embed({.rows = n,
             .streams = 1,
             .ids = ids,
             .table = weights.markov_embed,
             .override_rows = nullptr,
             .use_override = nullptr,
             .x = embedded});
  Linear(n, weights.markov_head, embedded, markov_logits.as<float>(), BeforeHead(options.activations));
  Add(n, vocab, markov_logits.as<float>(), logits + j * vocab, drafts * vocab);
}

void DraftModel::Impl::MarkovConfidence(int64_t first, int64_t count) {
  const int64_t n = num_anchors;
  Linear(count * n, weights.confidence_markov, markov.as<float>(), markov_confidence.as<float>());
  if (n == 1) return Add(1, count, markov_confidence.as<float>(), confidence.as<float>() + first, count);
  for (int64_t j = 0; j < count; ++j) {
    Add(n, 1, markov_confidence.as<float>() + j * n, confidence.as<float>() + first + j, drafts);
  }
}

void DraftModel::RunBlock(std::span<const DraftAnchor> anchors, std::span<const WindowCache> windows, int64_t drafts) {
  impl_->first_anchor = 0;
  impl_->RunStages(anchors, windows, drafts);
  impl_->HiddenConfidence();
}

void DraftModel::Next(std::span<const int32_t> previous) {
  Impl& m = *impl_;
  DI_CHECK(static_cast<int64_t>(previous.size()) == m.num_anchors && m.next < m.drafts);
  m.dev.CopyToDevice(m.previous.data(), previous.data(), previous.size_bytes());
  m.Heads(m.next, m.previous.as<int32_t>(), m.markov.as<float>());
  m.MarkovConfidence(m.next++, 1);
}

}  // namespace deepinfer::model::deepseek_v41
