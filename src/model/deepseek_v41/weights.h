// SPDX-License-Identifier: Apache-2.0
// The tensors of a checkpoint bound to the fields that the forward pass reads. Matrices stay where the checkpoint is
// mapped (CPU) or go to the device in its own form; small vectors are widened to fp32.
// Immutable after binding. Refers to the checkpoint's mapping and to the backend: both must outlive it.
#pragma once

#include <optional>
#include <vector>

#include "backend/api/backend.h"
#include "checkpoint/checkpoint.h"

namespace deepinfer::model::deepseek_v41 {

using backend::Matrix;

// fp32 values on the device.
class Vector {
 public:
  Vector() = default;
  explicit Vector(backend::Buffer buffer) : buffer_(std::move(buffer)) {}
  const float* data() const { return buffer_.as<float>(); }

 private:
  backend::Buffer buffer_;
};

// What the input of a matrix is rounded to where that is not what the pass says (spec/model.md 7).
// The official engine never quantises the input of wo_a.
constexpr backend::Activations BeforeWoA(backend::Activations activations) {
  return activations == backend::Activations::kFp8 ? backend::Activations::kBf16 : activations;
}
// It keeps both products of a compressor with a gate in fp32.
inline constexpr backend::Activations kBeforeGatedCompressor = backend::Activations::kFp32;
// The input of a head, this one's or the draft's Markov head: the last norm's output stays in bf16, as the head is published
// (spec/dspark.md 3.5).
constexpr backend::Activations BeforeHead(backend::Activations activations) {
  return activations == backend::Activations::kFp32 ? activations : backend::Activations::kBf16;
}

// One hyper-connection site.
struct HcWeights {
  Matrix fn;
  Vector base;
  Vector scale;
};

struct CompressorWeights {
  Matrix wkv;
  std::optional<Matrix> wgate;  // ratio > 1
  Vector norm;
  Matrix index_wk;
  Vector index_norm;
};

struct IndexerWeights {
  Matrix wq_b;
  Matrix weights_proj;
};

struct AttentionWeights {
  Matrix wq_a, wq_b, wkv, wo_a, wo_b;
  Vector q_norm, kv_norm, sink;
  std::optional<CompressorWeights> compressor;  // KV sources
  std::optional<IndexerWeights> indexer;        // index sources
};

struct MoeWeights {
  Matrix gate;
  Vector bias, image_bias;
  std::vector<backend::ExpertWeights> experts;
  backend::ExpertWeights shared;
};

struct EngramWeights {
  Matrix table;
  Matrix wkv;
  Vector qk_weight;  // [streams, hidden]: q_weight * k_weight
  backend::Buffer multipliers, primes, offsets;  // int64
};

struct LayerWeights {
  Vector attn_norm, ffn_norm;
  HcWeights hc_attn, hc_ffn;
  AttentionWeights attn;
  MoeWeights moe;
  std::optional<EngramWeights> engram;
};

struct Weights {
  Matrix embed;
  Matrix head;
  Vector norm;
  std::vector<LayerWeights> layers;
  backend::Buffer compressed_ids;  // int32 [vocab]; empty without an Engram
  int32_t compressed_pad = 0;
  Vector rope_plain;  // inverse frequencies [rope_dim / 2] of layers of ratio 0
  Vector rope_yarn;   // of layers with a compressed branch
};

// The draft model. Its stages are layers without a compressed branch: `stack` is bound as the weights of a model of
// DraftStackConfig, with the trunk's embedding and head.
struct DraftWeights {
  Weights stack;
  Matrix main_proj;  // [hidden, target layers * hidden]
  Vector main_norm;
  Matrix markov_embed, markov_head;                 // [vocab, rank]
  Matrix confidence_hidden, confidence_markov;      // [1, hidden], [1, rank]: the two parts of confidence_head.proj
};

// The stages as a stack of their own: what its layers are like, without anything that only the trunk has.
checkpoint::ModelConfig DraftStackConfig(const checkpoint::ModelConfig& trunk);

// Binds everything but draft and vision. `compressed_ids` is the Engram's token map (tokenizer/compressed_vocab.h); it is
// empty where the model has no Engram. `activations`: of the passes that will read the weights (Backend::BindMatrix). `stats`: what it
// took. Errors: as the checkpoint's; kResourceExhausted when the device is full.
Result<Weights> BindWeights(const checkpoint::Checkpoint& checkpoint, std::span<const int32_t> compressed_ids,
                            backend::Backend& backend, backend::Activations activations, backend::BindStats* stats = nullptr);

// Binds the draft (mtp.*); embedding and head are those of `trunk`, the weights of the same checkpoint on the same
// backend. Errors: kNotFound where the checkpoint has no draft (its warnings say why); kResourceExhausted.
Result<DraftWeights> BindDraftWeights(const checkpoint::Checkpoint& checkpoint, const Weights& trunk,
                                      backend::Backend& backend, backend::Activations activations);

// Inverse frequencies in fp32 (spec/checkpoint.md 5): 1 / theta^(2i / rope_dim), blended with YaRN if it is given.
std::vector<float> RopeFrequencies(double theta, int64_t rope_dim, const checkpoint::YarnConfig* yarn);

}  // namespace deepinfer::model::deepseek_v41
