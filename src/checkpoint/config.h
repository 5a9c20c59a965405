// SPDX-License-Identifier: Apache-2.0
// What config.json says about a DeepSeek-V4.1 checkpoint: everything geometric, checked. Both spellings are read: the
// Hugging Face one (nested under text_config) and that of inference/config.json (flat, other names; docs/checkpoint.md
// has the table). Every count is within a stated range and the lists agree with each other, so that code which sizes
// buffers by these numbers needs no checks of its own.
// Plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"

namespace deepinfer::checkpoint {

// Positions of a cache block; every compress ratio divides it.
inline constexpr int64_t kBlockPositions = 128;
// Rows and columns of the tile (FP8), or columns of the row (FP4, Engram tables), that share one scale.
inline constexpr int64_t kScaleBlock = 32;

// YaRN, for the layers that have a compressed branch.
struct YarnConfig {
  double factor = 1;
  double beta_fast = 32;
  double beta_slow = 1;
  int64_t original_max_positions = 0;
};

struct EngramConfig {
  std::vector<int64_t> layers;          // ascending; empty: the model has no n-gram memory
  std::vector<int64_t> num_embeddings;  // rows of each layer's table = the sum of its primes (engram_hash.h)
  int64_t ngram_max = 0;                // 2-grams .. ngram_max-grams
  int64_t vocab_size = 0;               // primes are drawn from here upwards
  int64_t num_heads = 0;
  int64_t head_dim = 0;
  int64_t pad_token_id = 0;           // a token id; its compressed id stands in for what lies before the start
  int64_t compressed_vocab_size = 0;  // distinct values of the compressed token map

  bool present() const { return !layers.empty(); }
  int64_t num_columns() const { return (ngram_max - 1) * num_heads; }  // rows gathered per token
  int64_t width() const { return num_columns() * head_dim; }           // inputs of engram.wkv
};

// The draft model (DSpark).
struct DraftConfig {
  int64_t num_stages = 0;  // 0: none
  int64_t block_size = 0;
  int64_t noise_token_id = 0;
  std::vector<int64_t> target_layers;  // layers whose input is tapped, ascending
  int64_t markov_rank = 0;
  int64_t num_experts = 0;
  int64_t num_experts_per_token = 0;

  bool present() const { return num_stages > 0; }
};

struct VisionConfig {
  int64_t num_layers = 0;
  int64_t hidden_size = 0;
  int64_t num_heads = 0;
  int64_t intermediate_size = 0;
  int64_t patch_size = 0;
  double rope_theta = 0;
  int64_t downsample_ratio = 0;
  int64_t max_image_tokens = 0;
  int64_t min_pixels = 0;                  // an area
  std::optional<double> max_aspect_ratio;  // max_wh_ratio
};

struct ModelConfig {
  // Stack.
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t num_layers = 0;
  int64_t max_positions = 0;
  double rms_norm_eps = 0;
  bool tie_word_embeddings = false;

  // Hyper-connections.
  int64_t hc_mult = 0;  // residual streams
  int64_t hc_sinkhorn_iters = 0;
  double hc_eps = 0;
  int64_t hc_mixes() const { return (2 + hc_mult) * hc_mult; }

  // Attention.
  int64_t num_heads = 0;
  int64_t head_dim = 0;
  int64_t rope_dim = 0;  // the last channels of a head
  int64_t q_lora_rank = 0;
  int64_t o_lora_rank = 0;
  int64_t o_groups = 0;
  int64_t window = 0;
  double rope_theta = 0;           // layers of ratio 0
  double compress_rope_theta = 0;  // layers with a compressed branch
  YarnConfig yarn;

  // Compressed attention.
  std::vector<int64_t> compress_ratios;  // one per layer of the stack: 0, or a power of two up to kBlockPositions
  std::vector<int64_t> kv_sources;       // layers, ascending
  std::vector<int64_t> index_sources;    // layers, ascending; every KV source is one
  int64_t index_heads = 0;
  int64_t index_head_dim = 0;
  int64_t index_topk = 0;
  std::optional<int64_t> candidate_source;  // an index source
  int64_t candidate_blocks = 0;
  int64_t candidate_block_size = 0;

  // Experts.
  int64_t moe_intermediate_size = 0;
  int64_t num_experts = 0;
  int64_t num_experts_per_token = 0;
  double routed_scaling_factor = 0;
  double swiglu_limit = 0;

  EngramConfig engram;
  DraftConfig draft;
  std::optional<VisionConfig> vision;

  // Tokens. Absent where the file does not say (inference/config.json).
  std::optional<int64_t> bos_token_id;
  std::vector<int64_t> eos_token_ids;
  std::optional<int64_t> pad_token_id;
  std::optional<int64_t> image_token_id;

  bool quantized = false;  // there is a quantization_config: FP8 32x32 tiles and FP4 experts are to be expected

  bool IsKvSource(int64_t layer) const;
  bool IsIndexSource(int64_t layer) const;
  bool HasEngram(int64_t layer) const;
  // The KV source whose latents `layer` reads: the last one at or before it. REQUIRES: compress_ratios[layer] > 0.
  int64_t KvSourceOf(int64_t layer) const;
  // The index source whose choice `layer` uses. REQUIRES: compress_ratios[layer] > 0.
  int64_t IndexSourceOf(int64_t layer) const;
};

struct ParsedConfig {
  ModelConfig config;
  std::vector<std::string> unknown_keys;  // keys that were not used: a warning for the user
};

// Limits on the file itself.
inline constexpr size_t kConfigSizeMax = size_t{1} << 20;

// Parses and checks. Errors name the key, what was expected and what was found; kUnimplemented where the file describes
// another architecture (DeepSeek-V4.0 by name) or a setting that this program does not compute.
Result<ParsedConfig> ParseModelConfig(std::string_view json_text);

}  // namespace deepinfer::checkpoint
