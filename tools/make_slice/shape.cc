// SPDX-License-Identifier: Apache-2.0
#include "shape.h"

#include <fmt/format.h>

#include "checkpoint/engram_hash.h"
#include "tokenizer/compressed_vocab.h"

namespace deepinfer::tools {
namespace {

// Widths: published, and small.
struct Widths {
  int64_t vocab, hidden, inner, heads, head_dim, rope, q_rank, o_rank, o_groups, index_heads, index_dim, topk, blocks, engram_dim,
      markov_rank, positions;
};
constexpr Widths kPublished = {129280, 5120, 2304, 64, 512, 64, 1280, 1024, 8, 32, 128, 512, 2048, 256, 256, 1048576};
constexpr Widths kSmall = {0, 128, 64, 4, 64, 16, 64, 32, 2, 2, 32, 32, 16, 32, 32, 4096};

}  // namespace

Result<std::string> SliceConfig(const SliceOptions& options) {
  DI_ASSIGN_OR_RETURN(const std::shared_ptr<const Tokenizer> tokenizer, Tokenizer::Load(options.tokenizer));
  DI_ASSIGN_OR_RETURN(const CompressedVocab classes, CompressVocab(*tokenizer));
  const Widths& w = options.small ? kSmall : kPublished;
  const int64_t vocab = options.small ? (tokenizer->vocab_size() + 31) / 32 * 32 : std::max<int64_t>(w.vocab, tokenizer->vocab_size());
  const checkpoint::EngramConfig engram{.layers = {1},
                                        .ngram_max = 4,
                                        .vocab_size = options.engram_vocab,
                                        .num_heads = 8,
                                        .head_dim = w.engram_dim,
                                        .pad_token_id = 2,
                                        .compressed_vocab_size = classes.size};
  const int64_t engram_rows = checkpoint::MakeEngramHashes(engram)[0].num_rows();
  std::string ratios = "0, 0, 2, 2, 1, 1, 1";
  for (int64_t stage = 0; stage < options.draft_stages; ++stage) ratios += ", 0";
  std::string draft;
  if (options.draft_stages > 0) {
    draft = fmt::format(R"(, "dspark_block_size": 5, "dspark_noise_token_id": {}, "dspark_target_layer_ids": [4, 5, 6],
    "dspark_markov_rank": {}, "dspark_n_routed_experts": {}, "dspark_num_experts_per_tok": 3)",
                        vocab - 1, w.markov_rank, std::max<int64_t>(options.num_experts / 3, 3));
  }
  return fmt::format(R"({{
  "architectures": ["DeepseekV41ForCausalLM"], "model_type": "deepseek_v41", "dtype": "bfloat16",
  "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2,
  "quantization_config": {{"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [32, 32],
    "scale_fmt": "ue8m0", "expert_dtype": "fp4"}},
  "text_config": {{
    "model_type": "deepseek_v41_text", "vocab_size": {vocab}, "hidden_size": {hidden}, "moe_intermediate_size": {inner},
    "num_hidden_layers": 7, "num_attention_heads": {heads}, "num_key_value_heads": 1, "head_dim": {head_dim},
    "qk_rope_head_dim": {rope}, "q_lora_rank": {q_rank}, "o_lora_rank": {o_rank}, "o_groups": {o_groups},
    "hidden_act": "silu", "swiglu_limit": 10.0, "rms_norm_eps": 1e-20, "tie_word_embeddings": false,
    "max_position_embeddings": {positions}, "rope_theta": 10000.0,
    "rope_scaling": {{"rope_type": "yarn", "factor": 16.0, "beta_fast": 32.0, "beta_slow": 1.0,
      "original_max_position_embeddings": {original}}},
    "n_routed_experts": {experts}, "n_shared_experts": 1, "num_experts_per_tok": {expert_topk}, "scoring_func": "sqrtsoftplus",
    "topk_method": "noaux_tc", "norm_topk_prob": true, "routed_scaling_factor": 1.5, "sliding_window": 128,
    "compress_ratios": [{ratios}], "compress_rope_theta": 160000.0, "kv_source_layer_ids": [2, 4],
    "index_source_layer_ids": [2, 4, 5], "index_n_heads": {index_heads}, "index_head_dim": {index_dim},
    "index_topk": {topk}, "candidate_source_layer_id": 4, "candidate_topk_blocks": {blocks}, "candidate_block_size": 8,
    "hc_mult": 4, "hc_sinkhorn_iters": 20, "hc_eps": 1e-06, "engram_layer_ids": [1],
    "engram_num_embeddings": [{engram_rows}], "engram_max_ngram_size": 4, "engram_vocab_size": {engram_vocab},
    "engram_n_heads": 8, "engram_head_dim": {engram_dim}, "engram_pad_token_id": 2,
    "engram_compressed_vocab_size": {classes}, "num_nextn_predict_layers": {stages}{draft}
  }}
}}
)",
                     fmt::arg("vocab", vocab), fmt::arg("hidden", w.hidden), fmt::arg("inner", w.inner), fmt::arg("heads", w.heads),
                     fmt::arg("head_dim", w.head_dim), fmt::arg("rope", w.rope), fmt::arg("q_rank", w.q_rank),
                     fmt::arg("o_rank", w.o_rank), fmt::arg("o_groups", w.o_groups), fmt::arg("positions", w.positions),
                     fmt::arg("original", w.positions / 16), fmt::arg("experts", options.num_experts),
                     fmt::arg("expert_topk", std::min<int64_t>(6, options.num_experts)), fmt::arg("ratios", ratios),
                     fmt::arg("index_heads", w.index_heads), fmt::arg("index_dim", w.index_dim), fmt::arg("topk", w.topk),
                     fmt::arg("blocks", w.blocks), fmt::arg("engram_rows", engram_rows),
                     fmt::arg("engram_vocab", options.engram_vocab), fmt::arg("engram_dim", w.engram_dim),
                     fmt::arg("classes", classes.size), fmt::arg("stages", options.draft_stages), fmt::arg("draft", draft));
}

}  // namespace deepinfer::tools
