// SPDX-License-Identifier: Apache-2.0
// Attention of one layer (spec/model.md 3, 4): what every running row leaves for later rows (window KV, and in KV sources
// latents and index keys), then selection and attention for the rows that go on.
#include <algorithm>
#include <cmath>

#include "core/check.h"
#include "model/deepseek_v41/forward_impl.h"

namespace deepinfer::model::deepseek_v41 {

size_t Model::Impl::SourceIndex(int64_t layer) const {
  const auto it = std::upper_bound(config.kv_sources.begin(), config.kv_sources.end(), layer);
  DI_CHECK(it != config.kv_sources.begin());
  return static_cast<size_t>(it - config.kv_sources.begin() - 1);
}

// The latents whose last token is a running row at or above its request's global floor.
LatentTable Model::Impl::ListLatents(const Step& step, int32_t ratio) {
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
  return {.count = static_cast<int64_t>(l.last_row.size()),
          .last_row = l.device_last_row.as<int32_t>(),
          .index = l.device_index.as<int32_t>(),
          .requests = l.device_requests.as<int32_t>(),
          .positions = l.device_positions.as<int32_t>()};
}

void Model::Impl::StoreLatents(int64_t layer, const Step& step, const Caches& caches) {
  const CompressorWeights& w = *weights.layers[static_cast<size_t>(layer)].attn.compressor;
  const size_t source = SourceIndex(layer);
  const backend::GlobalCache& cache = caches.globals[source];
  const auto eps = static_cast<float>(config.rms_norm_eps);
  const LatentTable list = tabled.latents.empty() ? ListLatents(step, cache.ratio) : tabled.latents[source];
  const Activations activations = w.wgate ? kBeforeGatedCompressor : ActivationsOf(w.wkv);
  Linear(w.wkv, input.as<float>(), w.wgate ? nullptr : LaidInput(w.wkv), kv.as<float>(), activations);
  if (w.wgate) Linear(*w.wgate, input.as<float>(), nullptr, gate.as<float>(), activations);
  const int64_t n = list.count;
  dev.Compress({.rows = rows.size(),
                .latents = n,
                .ratio = cache.ratio,
                .ring = kCompressorRing,
                .dim = config.head_dim,
                .kv = kv.as<float>(),
                .gate = w.wgate ? gate.as<float>() : nullptr,
                .last_row = list.last_row,
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
                 .positions = list.positions,
                 .inv_freq = weights.rope_yarn.data(),
                 .table = latent_rope.as<float>()});
  dev.StoreIndexKey({.latents = n,
                     .rope_dim = config.rope_dim,
                     .key = index_key.as<float>(),
                     .norm_weight = w.index_norm.data(),
                     .norm_eps = eps,
                     .table = latent_rope.as<float>(),
                     .index = list.index,
                     .requests = list.requests,
                     .cache = cache});
  dev.StoreLatent({.latents = n,
                   .rope_dim = config.rope_dim,
                   .latent = latent.as<float>(),
                   .table = latent_rope.as<float>(),
                   .index = list.index,
                   .requests = list.requests,
                   .cache = cache});
}

void Model::Impl::StoreKv(int64_t layer, const Step& step, const Caches& caches) {
  const AttentionWeights& w = weights.layers[static_cast<size_t>(layer)].attn;
  const bool compressed = config.compress_ratios[static_cast<size_t>(layer)] > 0;
  dev.LinearStoreWindow(LinearOf(w.wkv, input.as<float>(), LaidInput(w.wkv), kv.as<float>(), ActivationsOf(w.wkv)),
                        {.rows = rows.size(),
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
  Linear(w.wq_b, qr.as<float>(), LaysQr(layer, rows.size()) ? laid_qr.data() : nullptr, index_q.as<float>(), ActivationsOf(w.wq_b));
  dev.Rope({.rows = rows.size(),
            .heads = config.index_heads,
            .dim = dim,
            .rope_dim = config.rope_dim,
            .table = rope_yarn.as<float>(),
            .round_index = true,
            .x = index_q.as<float>()});
  Linear(w.weights_proj, input.as<float>(), LaidInput(w.weights_proj), index_weights.as<float>(), ActivationsOf(w.weights_proj));
  backend::Candidates candidates = backend::Candidates::kNone;
  if (config.candidate_source && layer >= *config.candidate_source) {
    candidates = layer == *config.candidate_source ? backend::Candidates::kPublish : backend::Candidates::kRestrict;
  }
  JoinBranch();  // StoreKv's
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

// Whether all matrices that read the queries' latent take n rows of it laid out, and alike.
bool Model::Impl::LaysQr(int64_t layer, int64_t n) const {
  const AttentionWeights& w = weights.layers[static_cast<size_t>(layer)].attn;
  if (LaidBytes(w.wq_b, n) == 0) return false;
  return !w.indexer || (LaidBytes(w.indexer->wq_b, n) > 0 && ActivationsOf(w.indexer->wq_b) == ActivationsOf(w.wq_b));
}

// What attention left, as rows or as inputs, back to the hidden size and into the streams, and the mixes of the experts' site.
void Model::Impl::ProjectAttended(int64_t layer, const void* inputs) {
  const LayerWeights& of_layer = weights.layers[static_cast<size_t>(layer)];
  const AttentionWeights& w = of_layer.attn;
  void* laid = Lays(w.wo_b) ? laid_grouped.data() : nullptr;
  dev.Linear({.rows = rows.size(),
              .w = w.wo_a,
              .groups = config.o_groups,
              .activations = BeforeWoA(options.activations),
              .x = attended.as<float>(),
              .x_stride = config.num_heads * config.head_dim,
              .inputs = inputs,
              .y = laid == nullptr ? grouped.as<float>() : nullptr,
              .y_stride = w.wo_a.rows,
              .y_inputs = laid,
              .y_inputs_as = ActivationsOf(w.wo_b)});
  dev.LinearExpandMix(LinearOf(w.wo_b, grouped.as<float>(), laid, sublayer.as<float>(), ActivationsOf(w.wo_b)), ExpandOf(),
                      MixOf(of_layer.hc_ffn, of_layer.ffn_norm, attn_pre, pre, of_layer.moe.shared.w1));
}

// The queries' latent, normed: as rows, or as `inputs` of linears.
void Model::Impl::MakeQr(const AttentionWeights& w, void* inputs) {
  auto* y = inputs == nullptr ? qr.as<float>() : nullptr;
  dev.LinearNorm({.rows = rows.size(),
                  .w = w.wq_a,
                  .activations = ActivationsOf(w.wq_a),
                  .x = input.as<float>(),
                  .x_stride = config.hidden_size,
                  .inputs = LaidInput(w.wq_a),
                  .y = y,
                  .y_stride = config.q_lora_rank},
                 {.rows = rows.size(),
                  .dim = config.q_lora_rank,
                  .x = y,
                  .x_stride = config.q_lora_rank,
                  .weight = w.q_norm.data(),
                  .eps = static_cast<float>(config.rms_norm_eps),
                  .y = y,
                  .inputs = inputs,
                  .inputs_as = ActivationsOf(w.wq_b)});
}

void Model::Impl::Attend(int64_t layer, const Step& step, const Caches& caches, const TapFn& tap) {
  const AttentionWeights& w = weights.layers[static_cast<size_t>(layer)].attn;
  const bool compressed = config.compress_ratios[static_cast<size_t>(layer)] > 0, in_blocks = options.draft_block > 0;
  const RowArray& rope = compressed ? rope_yarn : rope_plain;
  const int64_t n = rows.size();
  void* inputs_of_queries = LaysQr(layer, n) ? laid_qr.data() : nullptr;
  MakeQr(w, inputs_of_queries);
  // The selection, where there is one, needs no queries.
  if (w.indexer) BeginBranch();
  Linear(w.wq_b, qr.as<float>(), inputs_of_queries, q.as<float>(), ActivationsOf(w.wq_b));
  dev.Rope({.rows = n,
            .heads = config.num_heads,
            .dim = config.head_dim,
            .rope_dim = config.rope_dim,
            .table = rope.as<float>(),
            .x = q.as<float>()});
  if (w.indexer) {
    EndBranch();
    Select(layer, caches, tap);
  }
  JoinBranch();  // that one or StoreKv's

  for (const Segment& segment : step.segments) {
    DI_CHECK(!in_blocks || (segment.end - segment.begin == options.draft_block && !compressed));
  }
  const int32_t *row_floors = floors.as<int32_t>(), *row_ends = block_ends.as<int32_t>();
  if (tabled.floors.empty()) {
    ListFloors(step, layer);
    dev.CopyToDevice(floors.as<void>(), host_floors.data(), host_floors.size() * 4);
    if (in_blocks) dev.CopyToDevice(block_ends.data(), host_ends.data(), host_ends.size() * 4);
  } else {
    row_floors = tabled.floors[static_cast<size_t>(layer)];
    row_ends = tabled.ends;
  }
  void* inputs = AttendedInputBytes(w.wo_a, n) > 0 ? attended.data() : nullptr;
  dev.Attention({.rows = n,
                 .heads = config.num_heads,
                 .dim = config.head_dim,
                 .rope_dim = config.rope_dim,
                 .q = q.as<float>(),
                 .table = rope.as<float>(),
                 .positions = in_blocks ? row_ends : rows.device_positions(),
                 .requests = rows.device_requests(),
                 .window = static_cast<int32_t>(config.window + options.draft_block),
                 .window_floor = row_floors,
                 .window_cache = caches.windows[static_cast<size_t>(layer)],
                 .has_latents = compressed,
                 .latent_cache = compressed ? caches.globals[SourceIndex(layer)] : backend::GlobalCache{},
                 .topk = config.index_topk,
                 .selected = selected.as<int32_t>(),
                 .selected_count = selected_count.as<int32_t>(),
                 .sink = w.sink.data(),
                 .scale = static_cast<float>(1 / std::sqrt(static_cast<double>(config.head_dim))),
                 .activations = options.activations,
                 .out = attended.as<float>(),
                 .inputs = inputs});
  ProjectAttended(layer, inputs);
}

}  // namespace deepinfer::model::deepseek_v41
