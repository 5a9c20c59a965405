// SPDX-License-Identifier: Apache-2.0
// Hyper-connections (spec/model.md 2), the Engram (6) and the mixture of experts (5).
#include "model/deepseek_v41/forward_impl.h"

namespace deepinfer::model::deepseek_v41 {

backend::HcMixParams Model::Impl::MixOf(const HcWeights& w, const Vector& norm, const RowArray& collapse, const RowArray& new_pre,
                                        const Matrix& reader) {
  laid_input_rows = Lays(reader) ? rows.size() : 0;
  laid_input_as = ActivationsOf(reader);
  return {.rows = rows.size(),
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
          .collapsed = input.as<float>(),
          .inputs = laid_input_rows > 0 ? laid_input.data() : nullptr,
          .inputs_as = laid_input_as};
}

backend::HcExpandParams Model::Impl::ExpandOf() const {
  return {.rows = rows.size(),
          .streams = config.hc_mult,
          .hidden = config.hidden_size,
          .y = sublayer.as<float>(),
          .post = post.as<float>(),
          .comb = comb.as<float>(),
          .x = streams.as<float>()};
}

// Keys and values of a layer's Engram, which depend on the tokens alone.
void Model::Impl::LookUpEngram(const EngramWeights& w, int64_t layer, const TapFn& tap) {
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
  Linear(w.wkv, engram_values.as<float>(), nullptr, engram_kv.as<float>(), ActivationsOf(w.wkv));
}

void Model::Impl::Engram(const EngramWeights& w, int64_t layer, const TapFn& tap) {
  if (branches() && layer > 0) {
    JoinBranch();  // Moe's
  } else {
    LookUpEngram(w, layer, tap);
  }
  dev.EngramApply({.rows = rows.size(),
                   .streams = config.hc_mult,
                   .hidden = config.hidden_size,
                   .kv = engram_kv.as<float>(),
                   .qk_weight = w.qk_weight.data(),
                   .dead = dead.as<uint8_t>(),
                   .eps = static_cast<float>(config.rms_norm_eps),
                   .x = streams.as<float>()});
}

void Model::Impl::Moe(int64_t layer, const TapFn& tap) {
  const MoeWeights& w = weights.layers[static_cast<size_t>(layer)].moe;
  const LayerWeights* next = layer + 1 < config.num_layers ? &weights.layers[static_cast<size_t>(layer + 1)] : nullptr;
  const int64_t topk = config.num_experts_per_token;
  const auto run = [&](int64_t chosen, bool has_shared, const float* last, float* y) {
    dev.Experts({.rows = rows.size(),
                 .hidden = config.hidden_size,
                 .topk = chosen,
                 .num_experts = config.num_experts,
                 .x = input.as<float>(),
                 .inputs = LaidInput(w.shared.w1),
                 .chosen = experts.as<int32_t>(),
                 .weights = expert_weights.as<float>(),
                 .experts = w.experts.data(),
                 .shared = w.shared,
                 .has_shared = has_shared,
                 .last = last,
                 .joins_last = last != nullptr,
                 .limit = static_cast<float>(config.swiglu_limit),
                 .activations = options.activations,
                 .y = y});
  };
  if (branches()) {
    // The shared expert beside the router and the routed experts.
    dev.BeginBranch();
    run(0, true, nullptr, shared_expert.as<float>());
    dev.EndBranch();
    if (next != nullptr && next->engram) {
      dev.BeginBranch();
      LookUpEngram(*next->engram, layer + 1, tap);
      dev.EndBranch();
    }
  }
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
  run(topk, !branches(), branches() ? shared_expert.as<float>() : nullptr, sublayer.as<float>());
}

}  // namespace deepinfer::model::deepseek_v41
