// SPDX-License-Identifier: Apache-2.0
// One pass, layer by layer. At layer l three sets of rows follow each other:
//   rows with position >= run_from[l]      Engram, mixes, window KV, compressor (what other rows may read later)
//   rows with position >= run_from[l + 1]  queries, selection, attention, experts (what goes on to layer l + 1)
// The mixes of a site do not depend on its sublayer, so they are computed together with the collapse that feeds it; the
// collapse uses the PREVIOUS site's `pre` (spec/model.md 1).
#include "model/deepseek_v41/forward.h"

#include <algorithm>
#include <cmath>

#include "core/check.h"
#include "model/deepseek_v41/row_set.h"

namespace deepinfer::model::deepseek_v41 {

using backend::Activations;
using backend::Buffer;
using backend::Matrix;

namespace {

constexpr int64_t kFloat = sizeof(float);

// The latents that a KV source completes in this step, on host and device.
struct LatentList {
  std::vector<int32_t> last_row, index, requests, positions;
  Buffer device_last_row, device_index, device_requests, device_positions;
};

}  // namespace

struct Model::Impl {
  const checkpoint::ModelConfig& config;
  const Weights& weights;
  backend::Backend& dev;
  ModelOptions options;

  // Per-row arrays that live across sublayers and shrink with the rows.
  RowSet rows;
  RowArray streams, input, pre, attn_pre, post, comb;
  RowArray rope_plain, rope_yarn;
  RowArray selected, selected_count, blocks, block_count;
  RowArray floors, dead, engram_tokens;
  // Scratch within a sublayer.
  Buffer qr, q, kv, attended, grouped, sublayer, index_q, index_weights, gate, latent, latent_rope, index_key;
  Buffer experts, expert_weights, engram_rows, engram_values, engram_kv, ids, use_embeds;
  Buffer final_index, final_streams, final_pre, final_hidden, logits;
  LatentList latents;
  std::vector<int32_t> host_floors, host_final;
  int64_t scratch_bytes = 0;

  Impl(const checkpoint::ModelConfig& c, const Weights& w, backend::Backend& b, const ModelOptions& o)
      : config(c), weights(w), dev(b), options(o) {}

  Status Allocate();
  Status AllocateRowArrays();

  std::vector<RowArray*> LiveArrays();
  void Begin(const Step& step);
  void Engram(const EngramWeights& w, int64_t layer, const TapFn& tap);
  void Mix(const HcWeights& w, const Vector& norm, const RowArray& collapse, const RowArray& new_pre);
  void Expand();
  void Attend(int64_t layer, const Step& step, const Caches& caches, const TapFn& tap);
  void StoreKv(int64_t layer, const Step& step, const Caches& caches);
  void StoreLatents(int64_t layer, const Step& step, const Caches& caches);
  void ListLatents(const Step& step, int32_t ratio);
  void Select(int64_t layer, const Caches& caches, const TapFn& tap);
  void Moe(int64_t layer, const TapFn& tap);
  const float* Finish(const Step& step);

  Activations ActivationsOf(const Matrix& w) const;
  void Linear(const Matrix& w, const float* x, int64_t x_stride, float* y, Activations activations, int64_t groups = 1);
  void Tapped(const TapFn& tap, Tap what, int64_t layer, const void* data, int64_t row_bytes) const {
    if (tap) tap(what, layer, rows.rows(), data, row_bytes);
  }
  size_t SourceIndex(int64_t layer) const;
};

Status Model::Impl::AllocateRowArrays() {
  const auto make = [&](RowArray* array, int64_t row_bytes) -> Status {
    DI_ASSIGN_OR_RETURN(*array, RowArray::Create(dev, options.rows_max, row_bytes));
    scratch_bytes += static_cast<int64_t>(array->size_bytes());
    return Status();
  };
  const int64_t hc = config.hc_mult;
  DI_RETURN_IF_ERROR(make(&streams, hc * config.hidden_size * kFloat));
  DI_RETURN_IF_ERROR(make(&input, config.hidden_size * kFloat));
  for (RowArray* array : {&pre, &attn_pre, &post}) DI_RETURN_IF_ERROR(make(array, hc * kFloat));
  DI_RETURN_IF_ERROR(make(&comb, hc * hc * kFloat));
  for (RowArray* array : {&rope_plain, &rope_yarn}) DI_RETURN_IF_ERROR(make(array, config.rope_dim * kFloat));
  DI_RETURN_IF_ERROR(make(&selected, std::max<int64_t>(config.index_topk, 1) * 4));
  DI_RETURN_IF_ERROR(make(&blocks, std::max<int64_t>(config.candidate_blocks, 1) * 4));
  for (RowArray* array : {&selected_count, &block_count, &floors}) DI_RETURN_IF_ERROR(make(array, 4));
  DI_RETURN_IF_ERROR(make(&engram_tokens, std::max<int64_t>(config.engram.ngram_max, 1) * 4));
  return make(&dead, 1);
}

Status Model::Impl::Allocate() {
  DI_RETURN_IF_ERROR(AllocateRowArrays());
  DI_ASSIGN_OR_RETURN(rows, RowSet::Create(dev, options.rows_max));
  const auto make = [&](Buffer* buffer, int64_t count, int64_t row_bytes) -> Status {
    DI_ASSIGN_OR_RETURN(*buffer, dev.Allocate(static_cast<size_t>(count * row_bytes)));
    scratch_bytes += count * row_bytes;
    return Status();
  };
  const checkpoint::ModelConfig& c = config;
  const int64_t n = options.rows_max, hidden = c.hidden_size;
  const std::pair<Buffer*, int64_t> per_row[] = {
      {&qr, c.q_lora_rank * kFloat},
      {&q, c.num_heads * c.head_dim * kFloat},
      {&kv, c.head_dim * kFloat},
      {&gate, c.head_dim * kFloat},
      {&attended, c.num_heads * c.head_dim * kFloat},
      {&grouped, c.o_groups * c.o_lora_rank * kFloat},
      {&sublayer, hidden * kFloat},
      {&index_q, c.index_heads * c.index_head_dim * kFloat},
      {&index_weights, c.index_heads * kFloat},
      {&latent, c.head_dim * kFloat},
      {&latent_rope, c.rope_dim * kFloat},
      {&index_key, c.index_head_dim * kFloat},
      {&experts, c.num_experts_per_token * 4},
      {&expert_weights, c.num_experts_per_token * kFloat},
      {&engram_rows, c.engram.num_columns() * 8},
      {&engram_values, c.engram.width() * kFloat},
      {&engram_kv, c.engram.present() ? (c.hc_mult + 1) * hidden * kFloat : 0},
      {&ids, 4},
      {&use_embeds, 1},
      {&latents.device_last_row, 4},
      {&latents.device_index, 4},
      {&latents.device_requests, 4},
      {&latents.device_positions, 4},
  };
  for (const auto& [buffer, row_bytes] : per_row) DI_RETURN_IF_ERROR(make(buffer, n, row_bytes));
  const int64_t m = options.logit_rows_max;
  DI_RETURN_IF_ERROR(make(&final_index, m, 4));
  DI_RETURN_IF_ERROR(make(&final_streams, m, c.hc_mult * hidden * kFloat));
  DI_RETURN_IF_ERROR(make(&final_pre, m, c.hc_mult * kFloat));
  DI_RETURN_IF_ERROR(make(&final_hidden, m, hidden * kFloat));
  return make(&logits, m, c.vocab_size * kFloat);
}

std::vector<RowArray*> Model::Impl::LiveArrays() {
  return {&streams,        &input,  &pre,         &attn_pre, &post, &comb,         &rope_plain, &rope_yarn, &selected,
          &selected_count, &blocks, &block_count, &floors,   &dead, &engram_tokens};
}

size_t Model::Impl::SourceIndex(int64_t layer) const {
  const auto it = std::upper_bound(config.kv_sources.begin(), config.kv_sources.end(), layer);
  DI_CHECK(it != config.kv_sources.begin());
  return static_cast<size_t>(it - config.kv_sources.begin() - 1);
}

// What a matrix's input is rounded to. FP8 activations are for FP8 and FP4 matrices alone; the matrices that the
// official engine keeps in fp32 ask for kFp32 where they are used.
Activations Model::Impl::ActivationsOf(const Matrix& w) const {
  return options.activations == Activations::kFp8 && w.scale == nullptr ? Activations::kFp32 : options.activations;
}

void Model::Impl::Linear(const Matrix& w, const float* x, int64_t x_stride, float* y, Activations activations,
                         int64_t groups) {
  dev.Linear({.rows = rows.size(),
              .w = w,
              .groups = groups,
              .activations = activations,
              .x = x,
              .x_stride = x_stride,
              .y = y,
              .y_stride = w.rows});
}

void Model::Impl::Begin(const Step& step) {
  rows.Reset(dev, step);
  const int64_t n = rows.size();
  DI_CHECK(n <= options.rows_max && static_cast<int64_t>(step.logit_rows.size()) <= options.logit_rows_max);
  dev.CopyToDevice(ids.data(), step.ids.data(), static_cast<size_t>(n) * 4);
  if (config.engram.present()) {
    dev.CopyToDevice(engram_tokens.as<void>(), step.tokens.data(), static_cast<size_t>(n * config.engram.ngram_max) * 4);
  }
  const std::vector<uint8_t> is_image =
      step.is_image.empty() ? std::vector<uint8_t>(static_cast<size_t>(n)) : std::vector(step.is_image.begin(), step.is_image.end());
  dev.CopyToDevice(dead.as<void>(), is_image.data(), is_image.size());
  dev.Embed({.rows = n,
             .streams = config.hc_mult,
             .ids = ids.as<int32_t>(),
             .table = weights.embed,
             .override_rows = step.embeds,
             .use_override = step.embeds == nullptr ? nullptr : dead.as<uint8_t>(),
             .x = streams.as<float>()});
  // Before the first site only stream 0 counts.
  std::vector<float> first(static_cast<size_t>(n * config.hc_mult));
  for (int64_t r = 0; r < n; ++r) first[static_cast<size_t>(r * config.hc_mult)] = 1;
  dev.CopyToDevice(pre.as<void>(), first.data(), first.size() * kFloat);
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

void Model::Impl::Engram(const EngramWeights& w, int64_t layer, const TapFn& tap) {
  const checkpoint::EngramConfig& e = config.engram;
  dev.EngramLookup({.rows = rows.size(),
                    .ngram_max = static_cast<int32_t>(e.ngram_max),
                    .heads = static_cast<int32_t>(e.num_heads),
                    .dim = static_cast<int32_t>(e.head_dim),
                    .tokens = engram_tokens.as<int32_t>(),
                    .compressed_ids = weights.compressed_ids.as<int32_t>(),
                    .pad = weights.compressed_pad,
                    .multipliers = w.multipliers.as<int64_t>(),
                    .primes = w.primes.as<int64_t>(),
                    .offsets = w.offsets.as<int64_t>(),
                    .table = w.table,
                    .table_rows = engram_rows.as<int64_t>(),
                    .out = engram_values.as<float>()});
  Tapped(tap, Tap::kEngramRows, layer, engram_rows.data(), e.num_columns() * 8);
  Linear(w.wkv, engram_values.as<float>(), e.width(), engram_kv.as<float>(), ActivationsOf(w.wkv));
  dev.EngramApply({.rows = rows.size(),
                   .streams = config.hc_mult,
                   .hidden = config.hidden_size,
                   .kv = engram_kv.as<float>(),
                   .qk_weight = w.qk_weight.data(),
                   .dead = dead.as<uint8_t>(),
                   .eps = static_cast<float>(config.rms_norm_eps),
                   .x = streams.as<float>()});
}

void Model::Impl::Mix(const HcWeights& w, const Vector& norm, const RowArray& collapse, const RowArray& new_pre) {
  dev.HcMix({.rows = rows.size(),
             .streams = config.hc_mult,
             .hidden = config.hidden_size,
             .x = streams.as<float>(),
             .fn = w.fn,
             .base = w.base.data(),
             .scale = w.scale.data(),
             .norm_eps = static_cast<float>(config.rms_norm_eps),
             .hc_eps = static_cast<float>(config.hc_eps),
             .sinkhorn_iters = static_cast<int32_t>(config.hc_sinkhorn_iters),
             .collapse = collapse.as<float>(),
             .norm_weight = norm.data(),
             .pre = new_pre.as<float>(),
             .post = post.as<float>(),
             .comb = comb.as<float>(),
             .collapsed = input.as<float>()});
}

void Model::Impl::Expand() {
  dev.HcExpand({.rows = rows.size(),
                .streams = config.hc_mult,
                .hidden = config.hidden_size,
                .y = sublayer.as<float>(),
                .post = post.as<float>(),
                .comb = comb.as<float>(),
                .x = streams.as<float>()});
}

// The latents whose last token is a running row at or above its request's global floor.
void Model::Impl::ListLatents(const Step& step, int32_t ratio) {
  LatentList& l = latents;
  for (auto* list : {&l.last_row, &l.index, &l.requests, &l.positions}) list->clear();
  for (size_t i = 0; i < rows.rows().size(); ++i) {
    const int32_t position = rows.positions()[i];
    const Segment& segment = step.segments[static_cast<size_t>(rows.segments()[i])];
    if ((position + 1) % ratio != 0 || position < segment.global_floor) continue;
    l.last_row.push_back(static_cast<int32_t>(i));
    l.index.push_back(position / ratio);
    l.requests.push_back(segment.request);
    l.positions.push_back(position / ratio * ratio);
  }
  const size_t bytes = l.last_row.size() * 4;
  dev.CopyToDevice(l.device_last_row.data(), l.last_row.data(), bytes);
  dev.CopyToDevice(l.device_index.data(), l.index.data(), bytes);
  dev.CopyToDevice(l.device_requests.data(), l.requests.data(), bytes);
  dev.CopyToDevice(l.device_positions.data(), l.positions.data(), bytes);
}

void Model::Impl::StoreLatents(int64_t layer, const Step& step, const Caches& caches) {
  const CompressorWeights& w = *weights.layers[static_cast<size_t>(layer)].attn.compressor;
  const size_t source = SourceIndex(layer);
  const backend::GlobalCache& cache = caches.globals[source];
  const auto eps = static_cast<float>(config.rms_norm_eps);
  ListLatents(step, cache.ratio);
  // With a gate, the official engine keeps both products in fp32.
  const Activations activations = w.wgate ? Activations::kFp32 : ActivationsOf(w.wkv);
  Linear(w.wkv, input.as<float>(), config.hidden_size, kv.as<float>(), activations);
  if (w.wgate) Linear(*w.wgate, input.as<float>(), config.hidden_size, gate.as<float>(), activations);
  const auto n = static_cast<int64_t>(latents.last_row.size());
  dev.Compress({.rows = rows.size(),
                .latents = n,
                .ratio = cache.ratio,
                .ring = kCompressorRing,
                .dim = config.head_dim,
                .kv = kv.as<float>(),
                .gate = w.wgate ? gate.as<float>() : nullptr,
                .last_row = latents.device_last_row.as<int32_t>(),
                .positions = rows.device_positions(),
                .requests = rows.device_requests(),
                .ring_slots = caches.ring_slots,
                .state = caches.compressor_state[source],
                .norm_weight = w.norm.data(),
                .norm_eps = eps,
                .out = latent.as<float>()});
  dev.Linear({.rows = n,
              .w = w.index_wk,
              .activations = ActivationsOf(w.index_wk),
              .x = latent.as<float>(),
              .x_stride = config.head_dim,
              .y = index_key.as<float>(),
              .y_stride = config.index_head_dim});
  dev.RopeTable({.rows = n,
                 .pairs = static_cast<int32_t>(config.rope_dim / 2),
                 .positions = latents.device_positions.as<int32_t>(),
                 .inv_freq = weights.rope_yarn.data(),
                 .table = latent_rope.as<float>()});
  dev.StoreIndexKey({.latents = n,
                     .rope_dim = config.rope_dim,
                     .key = index_key.as<float>(),
                     .norm_weight = w.index_norm.data(),
                     .norm_eps = eps,
                     .table = latent_rope.as<float>(),
                     .index = latents.device_index.as<int32_t>(),
                     .requests = latents.device_requests.as<int32_t>(),
                     .cache = cache});
  dev.StoreLatent({.latents = n,
                   .rope_dim = config.rope_dim,
                   .latent = latent.as<float>(),
                   .table = latent_rope.as<float>(),
                   .index = latents.device_index.as<int32_t>(),
                   .requests = latents.device_requests.as<int32_t>(),
                   .cache = cache});
}

void Model::Impl::StoreKv(int64_t layer, const Step& step, const Caches& caches) {
  const AttentionWeights& w = weights.layers[static_cast<size_t>(layer)].attn;
  const bool compressed = config.compress_ratios[static_cast<size_t>(layer)] > 0;
  Linear(w.wkv, input.as<float>(), config.hidden_size, kv.as<float>(), ActivationsOf(w.wkv));
  dev.StoreWindow({.rows = rows.size(),
                   .rope_dim = config.rope_dim,
                   .kv = kv.as<float>(),
                   .kv_stride = config.head_dim,
                   .norm_weight = w.kv_norm.data(),
                   .norm_eps = static_cast<float>(config.rms_norm_eps),
                   .table = (compressed ? rope_yarn : rope_plain).as<float>(),
                   .positions = rows.device_positions(),
                   .requests = rows.device_requests(),
                   .cache = caches.windows[static_cast<size_t>(layer)]});
  if (w.compressor) StoreLatents(layer, step, caches);
}

void Model::Impl::Select(int64_t layer, const Caches& caches, const TapFn& tap) {
  const IndexerWeights& w = *weights.layers[static_cast<size_t>(layer)].attn.indexer;
  const int64_t dim = config.index_head_dim;
  Linear(w.wq_b, qr.as<float>(), config.q_lora_rank, index_q.as<float>(), ActivationsOf(w.wq_b));
  dev.Rope({.rows = rows.size(),
            .heads = config.index_heads,
            .dim = dim,
            .rope_dim = config.rope_dim,
            .table = rope_yarn.as<float>(),
            .round_index = true,
            .x = index_q.as<float>()});
  Linear(w.weights_proj, input.as<float>(), config.hidden_size, index_weights.as<float>(), ActivationsOf(w.weights_proj));
  backend::Candidates candidates = backend::Candidates::kNone;
  if (config.candidate_source && layer >= *config.candidate_source) {
    candidates = layer == *config.candidate_source ? backend::Candidates::kPublish : backend::Candidates::kRestrict;
  }
  dev.IndexSelect({.rows = rows.size(),
                   .heads = config.index_heads,
                   .q = index_q.as<float>(),
                   .weights = index_weights.as<float>(),
                   .weight_scale = static_cast<float>(1 / std::sqrt(static_cast<double>(config.index_heads))),
                   .score_scale = static_cast<float>(1 / std::sqrt(static_cast<double>(dim))),
                   .positions = rows.device_positions(),
                   .requests = rows.device_requests(),
                   .cache = caches.globals[SourceIndex(layer)],
                   .topk = config.index_topk,
                   .candidates = candidates,
                   .block_size = config.candidate_block_size,
                   .blocks_max = config.candidate_blocks,
                   .blocks = blocks.as<int32_t>(),
                   .block_count = block_count.as<int32_t>(),
                   .selected = selected.as<int32_t>(),
                   .selected_count = selected_count.as<int32_t>()});
  Tapped(tap, Tap::kSelected, layer, selected.as<void>(), config.index_topk * 4);
}

void Model::Impl::Attend(int64_t layer, const Step& step, const Caches& caches, const TapFn& tap) {
  const AttentionWeights& w = weights.layers[static_cast<size_t>(layer)].attn;
  const bool compressed = config.compress_ratios[static_cast<size_t>(layer)] > 0;
  const RowArray& rope = compressed ? rope_yarn : rope_plain;
  const int64_t n = rows.size(), width = config.num_heads * config.head_dim;
  Linear(w.wq_a, input.as<float>(), config.hidden_size, qr.as<float>(), ActivationsOf(w.wq_a));
  dev.RmsNorm({.rows = n,
               .dim = config.q_lora_rank,
               .x = qr.as<float>(),
               .x_stride = config.q_lora_rank,
               .weight = w.q_norm.data(),
               .eps = static_cast<float>(config.rms_norm_eps),
               .y = qr.as<float>()});
  Linear(w.wq_b, qr.as<float>(), config.q_lora_rank, q.as<float>(), ActivationsOf(w.wq_b));
  dev.Rope({.rows = n,
            .heads = config.num_heads,
            .dim = config.head_dim,
            .rope_dim = config.rope_dim,
            .table = rope.as<float>(),
            .x = q.as<float>()});
  if (w.indexer) Select(layer, caches, tap);

  host_floors.clear();
  for (const int32_t s : rows.segments()) {
    host_floors.push_back(step.segments[static_cast<size_t>(s)].window_floor[static_cast<size_t>(layer)]);
  }
  dev.CopyToDevice(floors.as<void>(), host_floors.data(), host_floors.size() * 4);
  dev.Attention({.rows = n,
                 .heads = config.num_heads,
                 .dim = config.head_dim,
                 .rope_dim = config.rope_dim,
                 .q = q.as<float>(),
                 .table = rope.as<float>(),
                 .positions = rows.device_positions(),
                 .requests = rows.device_requests(),
                 .window = static_cast<int32_t>(config.window),
                 .window_floor = floors.as<int32_t>(),
                 .window_cache = caches.windows[static_cast<size_t>(layer)],
                 .has_latents = compressed,
                 .latent_cache = compressed ? caches.globals[SourceIndex(layer)] : backend::GlobalCache{},
                 .topk = config.index_topk,
                 .selected = selected.as<int32_t>(),
                 .selected_count = selected_count.as<int32_t>(),
                 .sink = w.sink.data(),
                 .scale = static_cast<float>(1 / std::sqrt(static_cast<double>(config.head_dim))),
                 .out = attended.as<float>()});
  // The official engine never quantises the input of wo_a (spec/model.md 7).
  const Activations before_wo_a = options.activations == Activations::kFp8 ? Activations::kFp32 : options.activations;
  Linear(w.wo_a, attended.as<float>(), width, grouped.as<float>(), before_wo_a, config.o_groups);
  Linear(w.wo_b, grouped.as<float>(), config.o_groups * config.o_lora_rank, sublayer.as<float>(), ActivationsOf(w.wo_b));
}

void Model::Impl::Moe(int64_t layer, const TapFn& tap) {
  const MoeWeights& w = weights.layers[static_cast<size_t>(layer)].moe;
  const int64_t topk = config.num_experts_per_token;
  dev.Route({.rows = rows.size(),
             .topk = topk,
             .x = input.as<float>(),
             .gate = w.gate,
             .bias = w.bias.data(),
             .image_bias = w.image_bias.data(),
             .is_image = dead.as<uint8_t>(),
             .normalize = true,
             .scale = static_cast<float>(config.routed_scaling_factor),
             .experts = experts.as<int32_t>(),
             .weights = expert_weights.as<float>()});
  Tapped(tap, Tap::kExperts, layer, experts.data(), topk * 4);
  dev.Experts({.rows = rows.size(),
               .hidden = config.hidden_size,
               .topk = topk,
               .num_experts = config.num_experts,
               .x = input.as<float>(),
               .chosen = experts.as<int32_t>(),
               .weights = expert_weights.as<float>(),
               .experts = w.experts.data(),
               .shared = w.shared,
               .has_shared = true,
               .limit = static_cast<float>(config.swiglu_limit),
               .activations = ActivationsOf(w.shared.w1),
               .y = sublayer.as<float>()});
}

const float* Model::Impl::Finish(const Step& step) {
  host_final.clear();
  size_t i = 0;
  for (const int32_t wanted : step.logit_rows) {
    while (i < rows.rows().size() && rows.rows()[i] < wanted) ++i;
    DI_CHECK(i < rows.rows().size() && rows.rows()[i] == wanted);  // else run_from is too high
    host_final.push_back(static_cast<int32_t>(i));
  }
  const auto n = static_cast<int64_t>(host_final.size());
  dev.CopyToDevice(final_index.data(), host_final.data(), host_final.size() * 4);
  const auto gather = [&](const RowArray& from, Buffer& to) {
    dev.GatherRows({.rows = n,
                    .row_bytes = from.row_bytes(),
                    .src = from.as<void>(),
                    .index = final_index.as<int32_t>(),
                    .dst = to.data()});
  };
  gather(streams, final_streams);
  gather(pre, final_pre);
  dev.HcCollapse({.rows = n,
                  .streams = config.hc_mult,
                  .hidden = config.hidden_size,
                  .x = final_streams.as<float>(),
                  .collapse = final_pre.as<float>(),
                  .norm_weight = weights.norm.data(),
                  .norm_eps = static_cast<float>(config.rms_norm_eps),
                  .collapsed = final_hidden.as<float>()});
  dev.Linear({.rows = n,
              .w = weights.head,
              .x = final_hidden.as<float>(),
              .x_stride = config.hidden_size,
              .y = logits.as<float>(),
              .y_stride = config.vocab_size});
  return logits.as<float>();
}

Model::Model(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Model::~Model() = default;
int64_t Model::scratch_bytes() const { return impl_->scratch_bytes; }

Result<std::unique_ptr<Model>> Model::Create(const checkpoint::ModelConfig& config, const Weights& weights,
                                             backend::Backend& backend, const ModelOptions& options) {
  auto impl = std::make_unique<Impl>(config, weights, backend, options);
  DI_RETURN_IF_ERROR(impl->Allocate().In("scratch memory of the model"));
  return std::unique_ptr<Model>(new Model(std::move(impl)));
}

const float* Model::Forward(const Step& step, const Caches& caches, const TapFn& tap) {
  Impl& m = *impl_;
  const std::vector<RowArray*> live = m.LiveArrays();
  const int64_t row_bytes = m.streams.row_bytes();
  m.Begin(step);
  for (int64_t layer = 0; layer < m.config.num_layers; ++layer) {
    const LayerWeights& w = m.weights.layers[static_cast<size_t>(layer)];
    if (layer == 0) m.rows.Narrow(m.dev, step, 0, live);
    m.Tapped(tap, Tap::kStreams, layer, m.streams.as<void>(), row_bytes);
    if (w.engram) m.Engram(*w.engram, layer, tap);
    m.Mix(w.hc_attn, w.attn_norm, m.pre, m.attn_pre);
    m.StoreKv(layer, step, caches);
    m.rows.Narrow(m.dev, step, layer + 1, live);
    if (m.rows.size() == 0) break;
    m.Attend(layer, step, caches, tap);
    m.Expand();
    m.Mix(w.hc_ffn, w.ffn_norm, m.attn_pre, m.pre);
    m.Moe(layer, tap);
    m.Expand();
  }
  if (m.rows.size() > 0) m.Tapped(tap, Tap::kStreams, m.config.num_layers, m.streams.as<void>(), row_bytes);
  return m.Finish(step);
}

}  // namespace deepinfer::model::deepseek_v41
