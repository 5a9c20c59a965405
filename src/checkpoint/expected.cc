// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/expected.h"

namespace deepinfer::checkpoint {
namespace {

class Builder {
 public:
  explicit Builder(const ModelConfig& config) : config_(config) {}

  std::vector<ExpectedTensor> Build() {
    const ModelConfig& c = config_;
    Add("embed.weight", Storage::kBF16, {c.vocab_size, c.hidden_size});
    for (int64_t layer = 0; layer < c.num_layers; ++layer) {
      const std::string prefix = fmt::format("layers.{}.", layer);
      AddBlock(prefix, c.num_experts);
      if (c.IsKvSource(layer)) AddCompressor(prefix, c.compress_ratios[static_cast<size_t>(layer)]);
      if (c.IsIndexSource(layer)) AddIndexer(prefix);
    }
    for (size_t i = 0; i < c.engram.layers.size(); ++i) {
      AddEngram(fmt::format("layers.{}.engram.", c.engram.layers[i]), c.engram.num_embeddings[i]);
    }
    Add("norm.weight", Storage::kBF16, {c.hidden_size});
    // Published as BF16; a quantised head is read too.
    Add("head", Storage::kFP8Tiles, {c.vocab_size, c.hidden_size});
    part_ = Part::kDraft;
    AddDraft();
    part_ = Part::kVision;
    if (c.vision) AddVision(*c.vision);
    return std::move(tensors_);
  }

 private:
  void Add(std::string name, Storage storage, Shape shape) {
    tensors_.push_back({std::move(name), storage, shape, part_});
  }

  // What the layers of the stack and the stages of the draft have in common.
  void AddBlock(const std::string& prefix, int64_t num_experts) {
    const ModelConfig& c = config_;
    const int64_t all_heads = c.num_heads * c.head_dim;
    Add(prefix + "attn_norm.weight", Storage::kBF16, {c.hidden_size});
    Add(prefix + "ffn_norm.weight", Storage::kBF16, {c.hidden_size});
    for (const std::string site : {"attn", "ffn"}) {
      Add(prefix + "hc_" + site + "_fn", Storage::kF32, {c.hc_mixes(), c.hc_mult * c.hidden_size});
      Add(prefix + "hc_" + site + "_base", Storage::kF32, {c.hc_mixes()});
      Add(prefix + "hc_" + site + "_scale", Storage::kF32, {3});
    }
    Add(prefix + "attn.wq_a", Storage::kFP8Tiles, {c.q_lora_rank, c.hidden_size});
    Add(prefix + "attn.q_norm.weight", Storage::kBF16, {c.q_lora_rank});
    Add(prefix + "attn.wq_b", Storage::kFP8Tiles, {all_heads, c.q_lora_rank});
    Add(prefix + "attn.wkv", Storage::kFP8Tiles, {c.head_dim, c.hidden_size});
    Add(prefix + "attn.kv_norm.weight", Storage::kBF16, {c.head_dim});
    Add(prefix + "attn.attn_sink", Storage::kF32, {c.num_heads});
    Add(prefix + "attn.wo_a", Storage::kFP8Tiles, {c.o_groups * c.o_lora_rank, all_heads / c.o_groups});
    Add(prefix + "attn.wo_b", Storage::kFP8Tiles, {c.hidden_size, c.o_groups * c.o_lora_rank});
    Add(prefix + "ffn.gate.weight", Storage::kBF16, {num_experts, c.hidden_size});
    Add(prefix + "ffn.gate.bias", Storage::kF32, {num_experts});
    Add(prefix + "ffn.gate.bias_vl", Storage::kF32, {num_experts});
    AddExpert(prefix + "ffn.shared_experts.", Storage::kFP8Tiles);
    for (int64_t expert = 0; expert < num_experts; ++expert) {
      AddExpert(fmt::format("{}ffn.experts.{}.", prefix, expert), Storage::kFP4);
    }
  }

  void AddExpert(const std::string& prefix, Storage storage) {
    const int64_t inner = config_.moe_intermediate_size;
    Add(prefix + "w1", storage, {inner, config_.hidden_size});
    Add(prefix + "w2", storage, {config_.hidden_size, inner});
    Add(prefix + "w3", storage, {inner, config_.hidden_size});
  }

  void AddCompressor(const std::string& prefix, int64_t ratio) {
    const ModelConfig& c = config_;
    Add(prefix + "attn.compressor.wkv.weight", Storage::kBF16, {c.head_dim, c.hidden_size});
    if (ratio > 1) Add(prefix + "attn.compressor.wgate.weight", Storage::kBF16, {c.head_dim, c.hidden_size});
    Add(prefix + "attn.compressor.norm.weight", Storage::kBF16, {c.head_dim});
    Add(prefix + "attn.indexer.wk.weight", Storage::kBF16, {c.index_head_dim, c.head_dim});
    Add(prefix + "attn.indexer.k_norm.weight", Storage::kBF16, {c.index_head_dim});
  }

  void AddIndexer(const std::string& prefix) {
    const ModelConfig& c = config_;
    Add(prefix + "attn.indexer.wq_b", Storage::kFP8Tiles, {c.index_heads * c.index_head_dim, c.q_lora_rank});
    Add(prefix + "attn.indexer.weights_proj.weight", Storage::kBF16, {c.index_heads, c.hidden_size});
  }

  void AddEngram(const std::string& prefix, int64_t rows) {
    const ModelConfig& c = config_;
    Add(prefix + "embed", Storage::kFP8Rows, {rows, c.engram.head_dim});
    Add(prefix + "wkv", Storage::kFP8Tiles, {(c.hc_mult + 1) * c.hidden_size, c.engram.width()});
    Add(prefix + "q_weight", Storage::kBF16, {c.hc_mult, c.hidden_size});
    Add(prefix + "k_weight", Storage::kBF16, {c.hc_mult, c.hidden_size});
  }

  void AddDraft() {
    const ModelConfig& c = config_;
    const DraftConfig& draft = c.draft;
    for (int64_t stage = 0; stage < draft.num_stages; ++stage) {
      const std::string prefix = fmt::format("mtp.{}.", stage);
      AddBlock(prefix, draft.num_experts);
      if (stage == 0) {
        const auto taps = static_cast<int64_t>(draft.target_layers.size());
        Add(prefix + "main_proj", Storage::kFP8Tiles, {c.hidden_size, taps * c.hidden_size});
        Add(prefix + "main_norm.weight", Storage::kBF16, {c.hidden_size});
      }
      if (stage == draft.num_stages - 1) {
        Add(prefix + "norm.weight", Storage::kBF16, {c.hidden_size});
        Add(prefix + "markov_head.embed.weight", Storage::kBF16, {c.vocab_size, draft.markov_rank});
        Add(prefix + "markov_head.head.weight", Storage::kBF16, {c.vocab_size, draft.markov_rank});
        Add(prefix + "confidence_head.proj.weight", Storage::kBF16, {1, c.hidden_size + draft.markov_rank});
      }
    }
  }

  void AddVision(const VisionConfig& vision) {
    constexpr int64_t kColours = 3;
    const int64_t width = vision.hidden_size;
    const int64_t cell = width * vision.downsample_ratio * vision.downsample_ratio;
    AddLinear("vision.patch_embed.proj", width, kColours * vision.patch_size * vision.patch_size);
    for (int64_t block = 0; block < vision.num_layers; ++block) {
      const std::string prefix = fmt::format("vision.blocks.{}.", block);
      Add(prefix + "norm1.weight", Storage::kBF16, {width});
      AddLinear(prefix + "attn.wqkv", 3 * width, width);
      AddLinear(prefix + "attn.wo", width, width);
      Add(prefix + "norm2.weight", Storage::kBF16, {width});
      Add(prefix + "mlp.w1.weight", Storage::kBF16, {2 * vision.intermediate_size, width});
      Add(prefix + "mlp.w2.weight", Storage::kBF16, {width, vision.intermediate_size});
    }
    Add("vision.norm.weight", Storage::kBF16, {width});
    AddLinear("aligner.w1", config_.hidden_size, cell);
    AddLinear("aligner.w2", config_.hidden_size, config_.hidden_size);
    for (const char* name : {"image_start", "image_end", "image_newline"}) {
      Add(name, Storage::kBF16, {config_.hidden_size});
    }
  }

  void AddLinear(const std::string& name, int64_t rows, int64_t columns) {
    Add(name + ".weight", Storage::kBF16, {rows, columns});
    Add(name + ".bias", Storage::kBF16, {rows});
  }

  const ModelConfig& config_;
  std::vector<ExpectedTensor> tensors_;
  Part part_ = Part::kText;
};

}  // namespace

std::vector<ExpectedTensor> ExpectedTensors(const ModelConfig& config) { return Builder(config).Build(); }

}  // namespace deepinfer::checkpoint
