// SPDX-License-Identifier: Apache-2.0
// One pass, layer by layer. At layer l three sets of rows follow each other:
//   rows with position >= run_from[l]      Engram, mixes, window KV, compressor (what other rows may read later)
//   rows with position >= run_from[l + 1]  queries, selection, attention, experts (what goes on to layer l + 1)
// The mixes of a site do not depend on its sublayer, so they are computed together with the collapse that feeds it; the
// collapse uses the PREVIOUS site's `pre` (spec/model.md 1).
#include "model/deepseek_v41/forward.h"

#include <algorithm>

#include "core/check.h"
#include "model/deepseek_v41/forward_impl.h"

namespace deepinfer::model::deepseek_v41 {

backend::LinearParams Model::Impl::LinearOf(const Matrix& w, const float* x, const void* inputs, float* y, Activations activations) const {
  return {.rows = rows.size(),
          .w = w,
          .activations = activations,
          .x = x,
          .x_stride = w.cols,
          .inputs = inputs,
          .y = y,
          .y_stride = w.rows};
}

void Model::Impl::Linear(const Matrix& w, const float* x, const void* inputs, float* y, Activations activations) {
  dev.Linear(LinearOf(w, x, inputs, y, activations));
}

void Model::Impl::UploadStep(const Step& step) {
  tabled = {};
  rows.Reset(dev, step);
  const int64_t n = rows.size();
  DI_CHECK(n <= options.rows_max && static_cast<int64_t>(step.logit_rows.size()) <= options.logit_rows_max);
  dev.CopyToDevice(ids.data(), step.ids.data(), static_cast<size_t>(n) * 4);
  if (config.engram.present()) {
    dev.CopyToDevice(engram_tokens.as<void>(), step.tokens.data(), static_cast<size_t>(n * config.engram.ngram_max) * 4);
  }
  host_dead.assign(step.is_image.begin(), step.is_image.end());
  host_dead.resize(static_cast<size_t>(n));
  dev.CopyToDevice(dead.as<void>(), host_dead.data(), host_dead.size());
  // Before the first site only stream 0 counts.
  host_pre.assign(static_cast<size_t>(n * config.hc_mult), 0);
  for (int64_t r = 0; r < n; ++r) host_pre[static_cast<size_t>(r * config.hc_mult)] = 1;
  dev.CopyToDevice(pre.as<void>(), host_pre.data(), host_pre.size() * kFloat);
}

void Model::Impl::Begin(const Step& step) {
  const int64_t n = rows.size();
  if (tabled.ids != nullptr) TakeTables();
  dev.Embed({.rows = n,
             .streams = config.hc_mult,
             .ids = tabled.ids != nullptr ? tabled.ids : ids.as<int32_t>(),
             .table = weights.embed,
             .override_rows = step.embeds,
             .use_override = step.embeds == nullptr ? nullptr : dead.as<uint8_t>(),
             .x = streams.as<float>()});
  const auto rope = [&](const Vector& frequencies, const RowArray& table) {
    dev.RopeTable({.rows = n,
                   .pairs = static_cast<int32_t>(config.rope_dim / 2),
                   .positions = rows.device_positions(),
                   .inv_freq = frequencies.data(),
                   .table = table.as<float>()});
  };
  rope(weights.rope_plain, rope_plain);
  rope(weights.rope_yarn, rope_yarn);
}

bool Model::Impl::ReadsStreams(int64_t layer, const TapFn& tap) const {
  const std::vector<int64_t>& targets = config.draft.target_layers;
  return tap || weights.layers[static_cast<size_t>(layer)].engram ||
         (options.draft_taps && std::find(targets.begin(), targets.end(), layer) != targets.end());
}

// Behind the last layer that the draft reads, the taps stay as they are while the rows shrink on.
void Model::Impl::TakeDraftTaps(int64_t layer, const TapFn& tap) {
  const std::vector<int64_t>& targets = config.draft.target_layers;
  const auto at = std::find(targets.begin(), targets.end(), layer) - targets.begin();
  const auto count = static_cast<int64_t>(targets.size());
  if (at == count) return;
  dev.HcSum({.rows = rows.size(),
             .streams = config.hc_mult,
             .hidden = config.hidden_size,
             .x = streams.as<float>(),
             .weights = nullptr,
             .y = draft_taps.as<float>() + at * config.hidden_size,
             .y_stride = count * config.hidden_size});
  if (at + 1 < count) return;
  tapped_rows.assign(rows.rows().begin(), rows.rows().end());
  tapped_values = draft_taps.as<float>();
  first_tap = 0;
  std::erase(live, &draft_taps);
  Tapped(tap, Tap::kDraftTaps, layer, draft_taps.as<void>(), draft_taps.row_bytes());
}

// The streams of the last rows to one row each, normed. A draft also wants them as they are before the norm.
void Model::Impl::Collapse(int64_t n) {
  const auto eps = static_cast<float>(config.rms_norm_eps);
  if (options.draft_block == 0) {
    dev.HcCollapse({.rows = n,
                    .streams = config.hc_mult,
                    .hidden = config.hidden_size,
                    .x = final_streams.as<float>(),
                    .collapse = final_pre.as<float>(),
                    .norm_weight = weights.norm.data(),
                    .norm_eps = eps,
                    .collapsed = final_hidden.as<float>()});
    return;
  }
  dev.HcSum({.rows = n,
             .streams = config.hc_mult,
             .hidden = config.hidden_size,
             .x = final_streams.as<float>(),
             .weights = final_pre.as<float>(),
             .y = states.as<float>(),
             .y_stride = config.hidden_size});
  dev.RmsNorm({.rows = n,
               .dim = config.hidden_size,
               .x = states.as<float>(),
               .x_stride = config.hidden_size,
               .weight = weights.norm.data(),
               .eps = eps,
               .y = final_hidden.as<float>()});
}

// The places of the rows whose logits are wanted among those that run.
const int32_t* Model::Impl::ListFinal(std::span<const int32_t> wanted_rows) {
  host_final.clear();
  size_t i = 0;
  for (const int32_t wanted : wanted_rows) {
    while (i < rows.rows().size() && rows.rows()[i] < wanted) ++i;
    DI_CHECK(i < rows.rows().size() && rows.rows()[i] == wanted);  // else run_from is too high
    host_final.push_back(static_cast<int32_t>(i));
  }
  dev.CopyToDevice(final_index.data(), host_final.data(), host_final.size() * 4);
  return final_index.as<int32_t>();
}

float* Model::Impl::Finish(const Step& step) {
  return Head(tabled.final_index != nullptr ? tabled.final_index : ListFinal(step.logit_rows));
}

// Logits of the rows that host_final lists, on the device at `index`.
float* Model::Impl::Head(const int32_t* index) {
  const auto n = static_cast<int64_t>(host_final.size());
  const auto gather = [&](const RowArray& from, Buffer& to) {
    dev.GatherRows({.rows = n,
                    .row_bytes = from.row_bytes(),
                    .src = from.as<void>(),
                    .index = index,
                    .dst = to.data()});
  };
  gather(streams, final_streams);
  gather(pre, final_pre);
  Collapse(n);
  dev.Linear({.rows = n,
              .w = weights.head,
              .activations = BeforeHead(options.activations),
              .x = final_hidden.as<float>(),
              .x_stride = config.hidden_size,
              .y = logits.as<float>(),
              .y_stride = config.vocab_size});
  return logits.as<float>();
}

Model::Model(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Model::~Model() = default;
int64_t Model::scratch_bytes() const { return impl_->scratch_bytes; }

DraftTaps Model::draft_taps() const {
  DI_CHECK(impl_->options.draft_taps);
  return {.rows = impl_->tapped_rows, .values = impl_->tapped_values, .first = static_cast<int32_t>(impl_->first_tap)};
}

const float* Model::states() const {
  DI_CHECK(impl_->options.draft_block > 0);
  return impl_->states.as<float>() + impl_->first_logit_row * impl_->config.hidden_size;
}

Result<std::unique_ptr<Model>> Model::Create(const checkpoint::ModelConfig& config, const Weights& weights,
                                             backend::Backend& backend, const ModelOptions& options) {
  auto impl = std::make_unique<Impl>(config, weights, backend, options);
  DI_RETURN_IF_ERROR(impl->Allocate().In("scratch memory of the model"));
  return std::unique_ptr<Model>(new Model(std::move(impl)));
}

float* Model::Impl::RunLayers(const Step& step, const Caches& caches, const TapFn& tap) {
  ListLiveArrays();
  const int64_t row_bytes = streams.row_bytes();
  tapped_rows.clear();
  Begin(step);
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    const LayerWeights& w = weights.layers[static_cast<size_t>(layer)];
    if (layer == 0) rows.Narrow(dev, step, 0, live);
    const backend::HcMixParams mix = MixOf(w.hc_attn, w.attn_norm, pre, attn_pre, w.attn.wq_a);
    if (layer > 0 && !ReadsStreams(layer, tap)) {
      dev.HcExpandMix(ExpandOf(), mix);
    } else {
      if (layer > 0) dev.HcExpand(ExpandOf());
      Tapped(tap, Tap::kStreams, layer, streams.as<void>(), row_bytes);
      if (w.engram) Engram(*w.engram, layer, tap);
      if (options.draft_taps) TakeDraftTaps(layer, tap);
      dev.HcMix(mix);
    }
    BeginBranch();
    StoreKv(layer, step, caches);
    EndBranch();
    rows.Narrow(dev, step, layer + 1, live);
    if (rows.size() == 0) break;
    Attend(layer, step, caches, tap);
    Moe(layer, tap);
  }
  if (config.num_layers > 0 && rows.size() > 0) dev.HcExpand(ExpandOf());
  if (rows.size() > 0) Tapped(tap, Tap::kStreams, config.num_layers, streams.as<void>(), row_bytes);
  return Finish(step);
}

float* Model::Forward(const Step& step, const Caches& caches, const TapFn& tap) {
  if (const int64_t n = impl_->RecordedRows(step, tap); n > 0) return impl_->RunTabled(step, caches, n);
  impl_->first_logit_row = 0;
  impl_->UploadStep(step);
  return impl_->RunLayers(step, caches, tap);
}

float* Model::Logits(std::span<const int32_t> rows) {
  DI_CHECK(static_cast<int64_t>(rows.size()) <= impl_->options.logit_rows_max);
  return impl_->Head(impl_->ListFinal(rows));
}

}  // namespace deepinfer::model::deepseek_v41
