// SPDX-License-Identifier: Apache-2.0
// The scratch memory of a step, by row.
#include <algorithm>

#include "core/check.h"
#include "model/deepseek_v41/forward_impl.h"

namespace deepinfer::model::deepseek_v41 {

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
  if (options.draft_taps) {
    DI_CHECK(config.draft.present());
    DI_RETURN_IF_ERROR(make(&draft_taps, static_cast<int64_t>(config.draft.target_layers.size()) * config.hidden_size * kFloat));
  }
  return make(&dead, 1);
}

Model::Impl::LaidRows Model::Impl::FindLaidRows() const {
  const int64_t n = options.rows_max;
  LaidRows laid;
  for (int64_t l = 0; l < config.num_layers; ++l) {
    const LayerWeights& w = weights.layers[static_cast<size_t>(l)];
    laid.input_bytes = std::max({laid.input_bytes, LaidBytes(w.attn.wq_a, n), LaidBytes(w.moe.shared.w1, n)});
    laid.qr_bytes = std::max(laid.qr_bytes, LaidBytes(w.attn.wq_b, n));
    laid.grouped_bytes = std::max(laid.grouped_bytes, LaidBytes(w.attn.wo_b, n));
    laid.all_of_qr = laid.all_of_qr && LaysQr(l, n);
    laid.all_of_grouped = laid.all_of_grouped && LaidBytes(w.attn.wo_b, n) > 0;
  }
  return laid;
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
  const LaidRows laid = FindLaidRows();
  const std::pair<Buffer*, int64_t> per_row[] = {
      {&qr, laid.all_of_qr ? 0 : c.q_lora_rank * kFloat},
      {&q, c.num_heads * c.head_dim * kFloat},
      {&kv, c.head_dim * kFloat},
      {&gate, c.head_dim * kFloat},
      {&grouped, laid.all_of_grouped ? 0 : c.o_groups * c.o_lora_rank * kFloat},
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
      {&block_ends, options.draft_block > 0 ? 4 : 0},
      {&latents.device_last_row, 4},
      {&latents.device_index, 4},
      {&latents.device_requests, 4},
      {&latents.device_positions, 4},
  };
  for (const auto& [buffer, row_bytes] : per_row) DI_RETURN_IF_ERROR(make(buffer, n, row_bytes));
  int64_t attended_bytes = n * c.num_heads * c.head_dim * kFloat;
  for (int64_t l = 0; l < c.num_layers; ++l) {
    attended_bytes = std::max(attended_bytes, AttendedInputBytes(weights.layers[static_cast<size_t>(l)].attn.wo_a, n));
  }
  DI_RETURN_IF_ERROR(make(&attended, 1, attended_bytes));
  DI_RETURN_IF_ERROR(make(&laid_input, 1, laid.input_bytes));
  DI_RETURN_IF_ERROR(make(&laid_qr, 1, laid.qr_bytes));
  DI_RETURN_IF_ERROR(make(&laid_grouped, 1, laid.grouped_bytes));
  const int64_t m = options.logit_rows_max;
  if (RecordedRowsMax() > 0) {
    DI_ASSIGN_OR_RETURN(tables, StepTables::Create(dev, TablesBytes()));
    scratch_bytes += static_cast<int64_t>(tables.size_bytes());
    const int32_t first = 0;
    DI_ASSIGN_OR_RETURN(zero, backend::Upload<int32_t>(dev, std::span(&first, 1)));
  }
  DI_RETURN_IF_ERROR(make(&shared_expert, RecordedRowsMax() > 0 ? n : 0, hidden * kFloat));
  DI_RETURN_IF_ERROR(make(&final_index, m, 4));
  DI_RETURN_IF_ERROR(make(&final_streams, m, c.hc_mult * hidden * kFloat));
  DI_RETURN_IF_ERROR(make(&final_pre, m, c.hc_mult * kFloat));
  DI_RETURN_IF_ERROR(make(&final_hidden, m, hidden * kFloat));
  DI_RETURN_IF_ERROR(make(&states, options.draft_block > 0 ? m : 0, hidden * kFloat));
  return make(&logits, m, c.vocab_size * kFloat);
}

void Model::Impl::ListLiveArrays() {
  live = {&streams,    &input,     &pre,      &attn_pre,       &post,   &comb,        &rope_plain,
          &rope_yarn,  &selected,  &selected_count, &blocks,   &block_count, &floors, &dead, &engram_tokens};
  if (options.draft_taps) live.push_back(&draft_taps);
}

}  // namespace deepinfer::model::deepseek_v41
