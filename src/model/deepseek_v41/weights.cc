// SPDX-License-Identifier: Apache-2.0
#include "model/deepseek_v41/weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "checkpoint/engram_hash.h"
#include "numeric/formats.h"

namespace deepinfer::model::deepseek_v41 {
namespace {

using backend::Activations;
using backend::Buffer;
using backend::WeightFormat;
using checkpoint::StoredMatrix;

class Binder {
 public:
  // `config`: of the layers to bind; the checkpoint's own, or that of its draft.
  Binder(const checkpoint::Checkpoint& checkpoint, const checkpoint::ModelConfig& config, backend::Backend& backend,
         Activations activations)
      : checkpoint_(checkpoint), config_(config), backend_(backend), activations_(activations) {}

  Result<Weights> Bind(std::span<const int32_t> compressed_ids);
  Result<DraftWeights> BindDraft(const Weights& trunk);

 private:
  Status BindAttention(const std::string& p, int64_t layer, AttentionWeights* w);
  Status BindMoe(const std::string& p, MoeWeights* w);
  Status BindEngram(const std::string& p, int64_t layer, EngramWeights* w);
  Status BindLayers(std::string_view stack, std::vector<LayerWeights>* layers);
  Status BindLayer(const std::string& p, int64_t layer, LayerWeights* w);
  Status BindConfidence(const std::string& name, DraftWeights* w);
  Status BindRope(Weights* w);
  Status BindHc(const std::string& name, HcWeights* w);
  Status BindExpert(const std::string& p, backend::ExpertWeights* w);

  Matrix HostMatrix(const std::string& name) const;
  Status Bind(const std::string& name, Matrix* matrix) { return Bind(name, activations_, matrix); }
  // A matrix whose inputs are rounded in a way of their own.
  Status Bind(const std::string& name, Activations activations, Matrix* matrix);
  Status Bind(const std::string& name, Vector* vector);
  Status Put(const std::vector<float>& values, Vector* vector);
  std::vector<float> Floats(const std::string& name) const;
  template <typename T>
  Status Put(std::span<const T> values, Buffer* buffer) {
    DI_ASSIGN_OR_RETURN(*buffer, backend::Upload<T>(backend_, values));
    return Status();
  }

  const checkpoint::Checkpoint& checkpoint_;
  const checkpoint::ModelConfig& config_;
  backend::Backend& backend_;
  const Activations activations_;
};

Matrix Binder::HostMatrix(const std::string& name) const {
  const StoredMatrix stored = checkpoint_.Matrix(name);
  Matrix host{.rows = stored.rows,
              .cols = stored.columns,
              .data = stored.weight,
              .scale = reinterpret_cast<const uint8_t*>(stored.scale)};
  switch (stored.format) {
    case StoredMatrix::Format::kBF16:
      host.format = WeightFormat::kBf16;
      break;
    case StoredMatrix::Format::kFP8:
      host.format = WeightFormat::kFp8Tile32;
      break;
    case StoredMatrix::Format::kFP8Rows:
      host.format = WeightFormat::kFp8Row32;
      break;
    case StoredMatrix::Format::kFP4:
      host.format = WeightFormat::kFp4Row32;
      break;
  }
  return host;
}

Status Binder::Bind(const std::string& name, Activations activations, Matrix* matrix) {
  DI_ASSIGN_OR_RETURN(*matrix, backend_.BindMatrix(HostMatrix(name), activations));
  return Status();
}

std::vector<float> Binder::Floats(const std::string& name) const {
  const TensorView tensor = checkpoint_.Tensor(name);
  std::vector<float> values(static_cast<size_t>(tensor.num_elements()));
  if (tensor.dtype == DType::kF32) {
    std::memcpy(values.data(), tensor.data, values.size() * sizeof(float));
  } else {
    DI_CHECK(tensor.dtype == DType::kBF16);
    const auto codes = tensor.As<uint16_t>();
    std::transform(codes.begin(), codes.end(), values.begin(), numeric::Bf16ToFloat);
  }
  return values;
}

Status Binder::Put(const std::vector<float>& values, Vector* vector) {
  Buffer buffer;
  DI_RETURN_IF_ERROR(Put(std::span<const float>(values), &buffer));
  *vector = Vector(std::move(buffer));
  return Status();
}

Status Binder::Bind(const std::string& name, Vector* vector) { return Put(Floats(name), vector); }

Status Binder::BindHc(const std::string& name, HcWeights* w) {
  const TensorView fn = checkpoint_.Tensor(name + "_fn");
  DI_ASSIGN_OR_RETURN(w->fn, backend_.BindMatrix({.format = WeightFormat::kF32,
                                                  .rows = fn.shape[0],
                                                  .cols = fn.shape[1],
                                                  .data = fn.data},
                                                 Activations::kFp32));
  DI_RETURN_IF_ERROR(Bind(name + "_base", &w->base));
  return Bind(name + "_scale", &w->scale);
}

Status Binder::BindAttention(const std::string& p, int64_t layer, AttentionWeights* w) {
  for (auto [name, matrix] : {std::pair{"wq_a", &w->wq_a}, {"wq_b", &w->wq_b}, {"wkv", &w->wkv}, {"wo_b", &w->wo_b}}) {
    DI_RETURN_IF_ERROR(Bind(p + name, matrix));
  }
  DI_RETURN_IF_ERROR(Bind(p + "wo_a", BeforeWoA(activations_), &w->wo_a));
  DI_RETURN_IF_ERROR(Bind(p + "q_norm.weight", &w->q_norm));
  DI_RETURN_IF_ERROR(Bind(p + "kv_norm.weight", &w->kv_norm));
  DI_RETURN_IF_ERROR(Bind(p + "attn_sink", &w->sink));
  if (config_.IsKvSource(layer)) {
    CompressorWeights& c = w->compressor.emplace();
    const bool gated = config_.compress_ratios[static_cast<size_t>(layer)] > 1;
    DI_RETURN_IF_ERROR(Bind(p + "compressor.wkv", gated ? kBeforeGatedCompressor : activations_, &c.wkv));
    if (gated) DI_RETURN_IF_ERROR(Bind(p + "compressor.wgate", kBeforeGatedCompressor, &c.wgate.emplace()));
    DI_RETURN_IF_ERROR(Bind(p + "compressor.norm.weight", &c.norm));
    DI_RETURN_IF_ERROR(Bind(p + "indexer.wk", &c.index_wk));
    DI_RETURN_IF_ERROR(Bind(p + "indexer.k_norm.weight", &c.index_norm));
  }
  if (config_.IsIndexSource(layer)) {
    IndexerWeights& i = w->indexer.emplace();
    DI_RETURN_IF_ERROR(Bind(p + "indexer.wq_b", &i.wq_b));
    DI_RETURN_IF_ERROR(Bind(p + "indexer.weights_proj", &i.weights_proj));
  }
  return Status();
}

Status Binder::BindExpert(const std::string& p, backend::ExpertWeights* w) {
  DI_RETURN_IF_ERROR(Bind(p + "w1", &w->w1));
  DI_RETURN_IF_ERROR(Bind(p + "w2", &w->w2));
  return Bind(p + "w3", &w->w3);
}

Status Binder::BindMoe(const std::string& p, MoeWeights* w) {
  DI_RETURN_IF_ERROR(Bind(p + "gate", &w->gate));
  DI_RETURN_IF_ERROR(Bind(p + "gate.bias", &w->bias));
  DI_RETURN_IF_ERROR(Bind(p + "gate.bias_vl", &w->image_bias));
  w->experts.resize(static_cast<size_t>(config_.num_experts));
  for (size_t e = 0; e < w->experts.size(); ++e) {
    DI_RETURN_IF_ERROR(BindExpert(fmt::format("{}experts.{}.", p, e), &w->experts[e]));
  }
  return BindExpert(p + "shared_experts.", &w->shared);
}

Status Binder::BindEngram(const std::string& p, int64_t layer, EngramWeights* w) {
  const checkpoint::EngramConfig& config = config_.engram;
  DI_ASSIGN_OR_RETURN(w->table, backend_.BindTable(HostMatrix(p + "embed")));
  DI_RETURN_IF_ERROR(Bind(p + "wkv", &w->wkv));
  std::vector<float> product = Floats(p + "q_weight");
  const std::vector<float> k_weight = Floats(p + "k_weight");
  for (size_t i = 0; i < product.size(); ++i) product[i] *= k_weight[i];
  DI_RETURN_IF_ERROR(Put(product, &w->qk_weight));
  const auto place = std::find(config.layers.begin(), config.layers.end(), layer) - config.layers.begin();
  const checkpoint::EngramHash hash = checkpoint::MakeEngramHashes(config)[static_cast<size_t>(place)];
  DI_RETURN_IF_ERROR(Put(std::span<const int64_t>(hash.multipliers), &w->multipliers));
  DI_RETURN_IF_ERROR(Put(std::span<const int64_t>(hash.primes), &w->primes));
  return Put(std::span<const int64_t>(hash.offsets), &w->offsets);
}

Status Binder::BindLayer(const std::string& p, int64_t layer, LayerWeights* w) {
  DI_RETURN_IF_ERROR(Bind(p + "attn_norm.weight", &w->attn_norm));
  DI_RETURN_IF_ERROR(Bind(p + "ffn_norm.weight", &w->ffn_norm));
  DI_RETURN_IF_ERROR(BindHc(p + "hc_attn", &w->hc_attn));
  DI_RETURN_IF_ERROR(BindHc(p + "hc_ffn", &w->hc_ffn));
  DI_RETURN_IF_ERROR(BindAttention(p + "attn.", layer, &w->attn));
  DI_RETURN_IF_ERROR(BindMoe(p + "ffn.", &w->moe));
  if (config_.HasEngram(layer)) DI_RETURN_IF_ERROR(BindEngram(p + "engram.", layer, &w->engram.emplace()));
  return Status();
}

Status Binder::BindLayers(std::string_view stack, std::vector<LayerWeights>* layers) {
  layers->resize(static_cast<size_t>(config_.num_layers));
  for (int64_t l = 0; l < config_.num_layers; ++l) {
    DI_RETURN_IF_ERROR(BindLayer(fmt::format("{}.{}.", stack, l), l, &(*layers)[static_cast<size_t>(l)]));
  }
  return Status();
}

Status Binder::BindRope(Weights* w) {
  DI_RETURN_IF_ERROR(Put(RopeFrequencies(config_.rope_theta, config_.rope_dim, nullptr), &w->rope_plain));
  return Put(RopeFrequencies(config_.compress_rope_theta, config_.rope_dim, &config_.yarn), &w->rope_yarn);
}

// One row, [hidden | rank], cut in two: its inputs lie in different buffers.
Status Binder::BindConfidence(const std::string& name, DraftWeights* w) {
  const StoredMatrix proj = checkpoint_.Matrix(name);
  DI_CHECK(proj.format == StoredMatrix::Format::kBF16 && proj.rows == 1 && proj.columns > config_.hidden_size);
  Matrix part{.format = WeightFormat::kBf16, .rows = 1, .cols = config_.hidden_size, .data = proj.weight};
  DI_ASSIGN_OR_RETURN(w->confidence_hidden, backend_.BindMatrix(part, Activations::kFp32));
  part.data = proj.weight + MatrixRowBytes(part);
  part.cols = proj.columns - config_.hidden_size;
  DI_ASSIGN_OR_RETURN(w->confidence_markov, backend_.BindMatrix(part, Activations::kFp32));
  return Status();
}

Result<DraftWeights> Binder::BindDraft(const Weights& trunk) {
  DraftWeights w;
  w.stack.embed = trunk.embed;
  w.stack.head = trunk.head;
  DI_RETURN_IF_ERROR(BindLayers("mtp", &w.stack.layers));
  DI_RETURN_IF_ERROR(BindRope(&w.stack));
  const std::string last = fmt::format("mtp.{}.", config_.num_layers - 1);
  DI_RETURN_IF_ERROR(Bind("mtp.0.main_proj", &w.main_proj));
  DI_RETURN_IF_ERROR(Bind("mtp.0.main_norm.weight", &w.main_norm));
  DI_RETURN_IF_ERROR(Bind(last + "norm.weight", &w.stack.norm));
  DI_RETURN_IF_ERROR(Bind(last + "markov_head.embed", &w.markov_embed));
  DI_RETURN_IF_ERROR(Bind(last + "markov_head.head", BeforeHead(activations_), &w.markov_head));
  DI_RETURN_IF_ERROR(BindConfidence(last + "confidence_head.proj", &w));
  return w;
}

Result<Weights> Binder::Bind(std::span<const int32_t> compressed_ids) {
  Weights w;
  DI_RETURN_IF_ERROR(Bind("embed", &w.embed));
  DI_RETURN_IF_ERROR(Bind("head", BeforeHead(activations_), &w.head));
  DI_RETURN_IF_ERROR(Bind("norm.weight", &w.norm));
  DI_RETURN_IF_ERROR(BindLayers("layers", &w.layers));
  if (config_.engram.present()) {
    DI_CHECK(static_cast<int64_t>(compressed_ids.size()) == config_.vocab_size);
    DI_RETURN_IF_ERROR(Put(compressed_ids, &w.compressed_ids));
    w.compressed_pad = compressed_ids[static_cast<size_t>(config_.engram.pad_token_id)];
  }
  DI_RETURN_IF_ERROR(BindRope(&w));
  return w;
}

Status BeginBinding(const checkpoint::Checkpoint& checkpoint, backend::Backend& backend) {
  std::vector<backend::SourceFile> files;
  for (const checkpoint::SafetensorsFile& shard : checkpoint.shards()) {
    const std::span<const std::byte> bytes = shard.file().bytes();
    files.push_back({.base = bytes.data(), .size_bytes = bytes.size(), .path = shard.path()});
  }
  return backend.BeginBinding(files);
}

}  // namespace

Result<Weights> BindWeights(const checkpoint::Checkpoint& checkpoint, std::span<const int32_t> compressed_ids,
                            backend::Backend& backend, Activations activations, backend::BindStats* stats) {
  DI_RETURN_IF_ERROR(BeginBinding(checkpoint, backend));
  Result<Weights> weights = Binder(checkpoint, checkpoint.config(), backend, activations).Bind(compressed_ids);
  const Result<backend::BindStats> done = backend.EndBinding();
  if (!weights.ok()) return weights.status();
  DI_RETURN_IF_ERROR(done.status());
  if (stats != nullptr) *stats = *done;
  return weights;
}

checkpoint::ModelConfig DraftStackConfig(const checkpoint::ModelConfig& trunk) {
  checkpoint::ModelConfig c = trunk;
  c.num_layers = trunk.draft.num_stages;
  c.num_experts = trunk.draft.num_experts;
  c.num_experts_per_token = trunk.draft.num_experts_per_token;
  c.compress_ratios.assign(static_cast<size_t>(c.num_layers), 0);
  c.kv_sources.clear();
  c.index_sources.clear();
  c.index_heads = c.index_topk = c.candidate_blocks = 0;
  c.candidate_source.reset();
  c.engram = {};
  c.draft = {};
  c.vision.reset();
  return c;
}

Result<DraftWeights> BindDraftWeights(const checkpoint::Checkpoint& checkpoint, const Weights& trunk,
                                      backend::Backend& backend, Activations activations) {
  if (!checkpoint.has_draft()) return Error(Code::kNotFound, "the checkpoint has no draft model (mtp.*)");
  const checkpoint::ModelConfig config = DraftStackConfig(checkpoint.config());
  DI_RETURN_IF_ERROR(BeginBinding(checkpoint, backend));
  Result<DraftWeights> weights = Binder(checkpoint, config, backend, activations).BindDraft(trunk);
  const Result<backend::BindStats> done = backend.EndBinding();
  if (weights.ok() && !done.ok()) return done.status();
  return weights;
}

std::vector<float> RopeFrequencies(double theta, int64_t rope_dim, const checkpoint::YarnConfig* yarn) {
  const auto dim = static_cast<double>(rope_dim);
  std::vector<float> frequencies(static_cast<size_t>(rope_dim / 2));
  for (size_t i = 0; i < frequencies.size(); ++i) {
    frequencies[i] = 1.0f / static_cast<float>(std::pow(theta, 2.0 * static_cast<double>(i) / dim));
  }
  if (yarn == nullptr || yarn->factor == 1) return frequencies;
  // The pair that turns `turns` times within the original length.
  const auto pair = [&](double turns) {
    return dim * std::log(static_cast<double>(yarn->original_max_positions) / (2 * M_PI * turns)) / (2 * std::log(theta));
  };
  const double low = std::max(std::floor(pair(yarn->beta_fast)), 0.0);
  double high = std::min(std::ceil(pair(yarn->beta_slow)), dim - 1);
  if (low == high) high += 0.001;  // as the official code has it: no division by zero
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const auto ramp = static_cast<float>(std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0));
    frequencies[i] = frequencies[i] / static_cast<float>(yarn->factor) * ramp + frequencies[i] * (1.0f - ramp);
  }
  return frequencies;
}

}  // namespace deepinfer::model::deepseek_v41
