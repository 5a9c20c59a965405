// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/config.h"

#include <algorithm>

#include "checkpoint/config_reader.h"
#include "checkpoint/engram_hash.h"
#include "core/json.h"

namespace deepinfer::checkpoint {
namespace {

// Upper ends of ranges: far above any model that was published, low enough that products of two or three of them
// stay within 63 bits and that lists sized by them stay small.
constexpr int64_t kVocabMax = int64_t{1} << 24;
constexpr int64_t kWidthMax = int64_t{1} << 17;
constexpr int64_t kLayersMax = 512;
constexpr int64_t kHeadsMax = 4096;
constexpr int64_t kHeadDimMax = 4096;
constexpr int64_t kExpertsMax = 4096;
constexpr int64_t kExpertsTotalMax = int64_t{1} << 18;  // of all layers
constexpr int64_t kPositionsMax = int64_t{1} << 30;  // positions, and sums of a few, are 32-bit numbers
constexpr int64_t kEngramColumnsTotalMax = 1024;  // of all layers

// The objects of the file that settings are read from. With the flat spelling `text` is the root itself.
struct Scopes {
  ConfigReader& root;
  ConfigReader& text;
  bool nested;
  std::vector<std::string>& unknown_keys;  // of objects that have been read

  // Ends the reading of an object inside of `parent`.
  void Close(const ConfigReader& object, ConfigReader* parent) const {
    parent->Fail(object.status());
    const std::vector<std::string> more = object.UnknownKeys();
    unknown_keys.insert(unknown_keys.end(), more.begin(), more.end());
  }
};

void CheckMultiple(ConfigReader& reader, Key key, int64_t value, int64_t factor, std::string_view why) {
  if (value % factor == 0) return;
  reader.Fail(Error(Code::kInvalidArgument, "{}: expected a multiple of {} ({}), found {}", reader.Name(key), factor,
                    why, value));
}

// Refuses what is not this architecture, naming what it is.
Status CheckArchitecture(const Json& root) {
  std::string found;
  if (const Json* list = root.Find("architectures"); list != nullptr && !list->IsNull()) {
    if (!list->IsArray() || list->Items().empty() || !list->Items().front().IsString()) {
      return Error(Code::kInvalidArgument, "architectures: expected a list with a name, found {}", list->KindName());
    }
    found = list->Items().front().AsString();
    if (found == "DeepseekV41ForCausalLM") return Status();
  } else if (const Json* type = root.Find("model_type"); type != nullptr) {
    if (!type->IsString()) {
      return Error(Code::kInvalidArgument, "model_type: expected a string, found {}", type->KindName());
    }
    found = type->AsString();
    if (found == "deepseek_v41") return Status();
  } else {
    // inference/config.json names no architecture; its KV sources are what only this one has.
    if (root.Find("kv_source_layers") != nullptr) return Status();
    return Error(Code::kInvalidArgument, "architectures: missing; expected [\"DeepseekV41ForCausalLM\"]");
  }
  if (found == "DeepseekV4ForCausalLM" || found == "deepseek_v4") {
    return Error(Code::kUnimplemented,
                 "this is a DeepSeek-V4.0 checkpoint ({}); this program runs DeepSeek-V4.1 (DeepseekV41ForCausalLM)",
                 found);
  }
  if (found.size() > 80) found = found.substr(0, 80) + "...";
  return Error(Code::kUnimplemented,
               "unsupported architecture {}; this program runs DeepSeek-V4.1 "
               "(DeepseekV41ForCausalLM)",
               WriteJson(Json(found), {.ascii_only = true}));
}

void ReadStack(const Scopes& scopes, ModelConfig* config) {
  ConfigReader& text = scopes.text;
  config->vocab_size = text.Int({"vocab_size"}, 1, kVocabMax);
  config->hidden_size = text.Int({"hidden_size", "dim"}, 1, kWidthMax);
  config->num_layers = text.Int({"num_hidden_layers", "n_layers"}, 1, kLayersMax);
  config->rms_norm_eps = text.Real({"rms_norm_eps", "norm_eps"}, 0, 1);
  config->tie_word_embeddings = text.BoolOr({"tie_word_embeddings"}, false);
  if (scopes.nested && scopes.root.Find({"tie_word_embeddings"}) != nullptr) {
    const bool tied = scopes.root.BoolOr({"tie_word_embeddings"}, false);
    if (text.Find({"tie_word_embeddings"}) != nullptr && tied != config->tie_word_embeddings) {
      text.Fail(Error(Code::kInvalidArgument, "tie_word_embeddings: {} at the top, {} in text_config", tied,
                      config->tie_word_embeddings));
    }
    config->tie_word_embeddings = tied;
  }
  config->hc_mult = text.Int({"hc_mult"}, 1, 16);
  config->hc_sinkhorn_iters = text.Int({"hc_sinkhorn_iters"}, 1, 1000);
  config->hc_eps = text.Real({"hc_eps"}, 0, 1);
}

void ReadAttention(const Scopes& scopes, ModelConfig* config) {
  ConfigReader& text = scopes.text;
  config->num_heads = text.Int({"num_attention_heads", "n_heads"}, 1, kHeadsMax);
  config->head_dim = text.Int({"head_dim"}, 1, kHeadDimMax);
  CheckMultiple(text, {"head_dim"}, config->head_dim, 32, "the KV cache is quantised in groups of 32");
  config->rope_dim = text.Int({"qk_rope_head_dim", "rope_head_dim"}, 2, std::max<int64_t>(2, config->head_dim));
  CheckMultiple(text, {"qk_rope_head_dim"}, config->rope_dim, 2, "channels are rotated in pairs");
  config->q_lora_rank = text.Int({"q_lora_rank"}, 1, kWidthMax);
  config->o_lora_rank = text.Int({"o_lora_rank"}, 1, kWidthMax);
  config->o_groups = text.Int({"o_groups"}, 1, kHeadsMax);
  if (config->num_heads % config->o_groups != 0) {
    text.Fail(Error(Code::kInvalidArgument, "{}: expected a divisor of the {} attention heads, found {}",
                    text.Name({"o_groups"}), config->num_heads, config->o_groups));
  }
  config->window = text.Int({"sliding_window", "window_size"}, 1, int64_t{1} << 20);
  config->rope_theta = text.Real({"rope_theta"}, 1, 1e12);
  config->compress_rope_theta = text.Real({"compress_rope_theta"}, 1, 1e12);
  text.ExpectInt({"num_key_value_heads"}, 1);
  text.ExpectBool({"attention_bias"}, false);
}

YarnConfig ReadYarnValues(ConfigReader& reader) {
  YarnConfig yarn;
  yarn.factor = reader.Real({"factor", "rope_factor"}, 1, 1e6);
  yarn.beta_fast = reader.RealOr({"beta_fast"}, 32, 1e-3, 1e6);
  yarn.beta_slow = reader.RealOr({"beta_slow"}, 1, 1e-3, 1e6);
  yarn.original_max_positions = reader.Int({"original_max_position_embeddings", "original_seq_len"}, 1, kPositionsMax);
  return yarn;
}

void ReadPositions(const Scopes& scopes, ModelConfig* config) {
  ConfigReader& text = scopes.text;
  if (text.Find({"rope_parameters"}) != nullptr) {
    text.Fail(Error(Code::kUnimplemented,
                    "{}: not supported; expected rope_theta, compress_rope_theta and rope_scaling",
                    text.Name({"rope_parameters"})));
  }
  const Json* scaling = text.Find({"rope_scaling"});
  if (scaling != nullptr && scaling->IsObject()) {
    ConfigReader reader(*scaling, text.Name({"rope_scaling"}) + ".");
    reader.ExpectString({"rope_type", "type"}, "yarn");
    config->yarn = ReadYarnValues(reader);
    scopes.Close(reader, &text);
  } else if (scaling != nullptr && !scaling->IsNull()) {
    text.Fail(Error(Code::kInvalidArgument, "{}: expected an object, found {}", text.Name({"rope_scaling"}),
                    scaling->KindName()));
  } else if (text.Find({"rope_factor"}) != nullptr) {
    config->yarn = ReadYarnValues(text);
  }
  // inference/config.json leaves the context length to the command line: what YaRN was set up for.
  const auto stretched =
      static_cast<int64_t>(config->yarn.factor * static_cast<double>(config->yarn.original_max_positions));
  const bool derivable = stretched >= 1 && stretched <= kPositionsMax;
  config->max_positions = derivable ? text.IntOr({"max_position_embeddings"}, stretched, 1, kPositionsMax)
                                    : text.Int({"max_position_embeddings"}, 1, kPositionsMax);
}

// compress_ratios has an entry for every layer and then one, 0, for every draft stage.
void ReadRatios(ConfigReader& text, ModelConfig* config) {
  constexpr Key kKey = {"compress_ratios"};
  std::vector<int64_t> ratios = text.Ints(kKey, 0, kBlockPositions, 2 * kLayersMax);
  if (!text.status().ok()) return;
  const auto expected = static_cast<size_t>(config->num_layers + config->draft.num_stages);
  if (ratios.size() != expected) {
    return text.Fail(Error(Code::kInvalidArgument,
                           "{}: expected {} entries (num_hidden_layers {} + num_nextn_predict_layers {}), found {}",
                           text.Name(kKey), expected, config->num_layers, config->draft.num_stages, ratios.size()));
  }
  for (size_t i = 0; i < ratios.size(); ++i) {
    const bool draft = i >= static_cast<size_t>(config->num_layers);
    if (ratios[i] != 0 && (draft || kBlockPositions % ratios[i] != 0)) {
      return text.Fail(Error(Code::kUnimplemented, "{}: entry {}: expected {}, found {}", text.Name(kKey), i,
                             draft ? "0 for a draft stage" : "0 or a divisor of 128", ratios[i]));
    }
  }
  ratios.resize(static_cast<size_t>(config->num_layers));
  config->compress_ratios = std::move(ratios);
}

// Sources and ratios must fit: every compressed layer follows a KV source of its own ratio.
void CheckSources(ConfigReader& text, const ModelConfig& config) {
  const auto fail = [&](Key key, int64_t layer, std::string_view what) {
    text.Fail(Error(Code::kInvalidArgument, "{}: layer {}: {}", text.Name(key), layer, what));
  };
  constexpr Key kKv = {"kv_source_layer_ids"};
  constexpr Key kIndex = {"index_source_layer_ids"};
  const auto ratio = [&](int64_t layer) { return config.compress_ratios[static_cast<size_t>(layer)]; };
  for (const int64_t layer : config.kv_sources) {
    if (ratio(layer) == 0) fail(kKv, layer, "a KV source needs a compress ratio above 0");
    if (!config.IsIndexSource(layer)) fail(kKv, layer, "a KV source must be in index_source_layer_ids too");
  }
  for (const int64_t layer : config.index_sources) {
    if (ratio(layer) == 0) fail(kIndex, layer, "an index source needs a compress ratio above 0");
  }
  int64_t source = -1;
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    if (config.IsKvSource(layer)) source = layer;
    if (ratio(layer) == 0) continue;
    if (source < 0) {
      fail({"compress_ratios"}, layer, "a compressed layer before the first of kv_source_layer_ids");
    } else if (ratio(layer) != ratio(source)) {
      fail({"compress_ratios"}, layer,
           fmt::format("ratio {} differs from {} of its KV source, layer {}", ratio(layer), ratio(source), source));
    }
  }
}

void ReadCompressed(const Scopes& scopes, ModelConfig* config) {
  ConfigReader& text = scopes.text;
  ReadRatios(text, config);
  constexpr Key kCandidate = {"candidate_source_layer_id", "candidate_source_layer"};
  const int64_t last = config->num_layers - 1;
  config->kv_sources = text.AscendingInts({"kv_source_layer_ids", "kv_source_layers"}, 0, last, kLayersMax);
  config->index_sources = text.AscendingInts({"index_source_layer_ids", "index_source_layers"}, 0, last, kLayersMax);
  config->candidate_source = text.OptionalInt(kCandidate, -1, last);
  if (config->candidate_source == -1) config->candidate_source.reset();
  if (!text.status().ok()) return;
  CheckSources(text, *config);
  if (config->index_sources.empty()) {
    for (const Key key : {Key{"index_n_heads"}, Key{"index_head_dim"}, Key{"index_topk"}}) text.Ignore(key);
  } else {
    config->index_heads = text.Int({"index_n_heads"}, 1, kHeadsMax);
    config->index_head_dim = text.Int({"index_head_dim"}, 1, kHeadDimMax);
    CheckMultiple(text, {"index_head_dim"}, config->index_head_dim, 32, "index keys are quantised in groups of 32");
    if (config->index_head_dim < config->rope_dim) {
      text.Fail(Error(Code::kInvalidArgument, "{}: expected at least qk_rope_head_dim = {}, found {}",
                      text.Name({"index_head_dim"}), config->rope_dim, config->index_head_dim));
    }
    config->index_topk = text.Int({"index_topk"}, 1, int64_t{1} << 20);
  }
  if (!config->candidate_source) {
    for (const Key key : {Key{"candidate_topk_blocks"}, Key{"candidate_block_size"}}) text.Ignore(key);
    return;
  }
  if (!config->IsIndexSource(*config->candidate_source)) {
    text.Fail(Error(Code::kInvalidArgument, "{}: layer {} is not in index_source_layer_ids", text.Name(kCandidate),
                    *config->candidate_source));
  }
  config->candidate_blocks = text.Int({"candidate_topk_blocks"}, 1, int64_t{1} << 24);
  config->candidate_block_size = text.Int({"candidate_block_size"}, 1, 4096);
}

void ReadExperts(const Scopes& scopes, ModelConfig* config) {
  ConfigReader& text = scopes.text;
  constexpr Key kChosen = {"num_experts_per_tok", "n_activated_experts"};
  config->moe_intermediate_size = text.Int({"moe_intermediate_size", "moe_inter_dim"}, 1, kWidthMax);
  config->num_experts = text.Int({"n_routed_experts"}, 1, kExpertsMax);
  config->num_experts_per_token = text.Int(kChosen, 1, config->num_experts);
  if (config->num_experts * config->num_layers > kExpertsTotalMax) {
    text.Fail(Error(Code::kInvalidArgument, "{}: {} experts in each of {} layers, more than {} in all",
                    text.Name({"n_routed_experts"}), config->num_experts, config->num_layers, kExpertsTotalMax));
  }
  config->routed_scaling_factor = text.Real({"routed_scaling_factor", "route_scale"}, 0, 1e6);
  config->swiglu_limit = text.Real({"swiglu_limit"}, 1e-6, 1e30);
  text.ExpectInt({"n_shared_experts"}, 1);
  text.ExpectString({"scoring_func", "score_func"}, "sqrtsoftplus");
  text.ExpectString({"topk_method"}, "noaux_tc");
  text.ExpectBool({"norm_topk_prob"}, true);
  text.ExpectString({"hidden_act"}, "silu");
  if (text.RealOr({"gate_temp"}, 1, -1e30, 1e30) != 1) {
    text.Fail(Error(Code::kUnimplemented, "{}: only 1 is supported", text.Name({"gate_temp"})));
  }
}

// The row counts follow from the other settings; a file where they do not is damaged or of another hashing scheme.
void CheckEngramRows(ConfigReader& text, const EngramConfig& engram) {
  const std::vector<EngramHash> hashes = MakeEngramHashes(engram);
  for (size_t i = 0; i < hashes.size(); ++i) {
    if (hashes[i].num_rows() == engram.num_embeddings[i]) continue;
    text.Fail(
        Error(Code::kInvalidArgument,
              "{}: layer {}: expected {} rows (the sum of its {} primes from engram_vocab_size = {} upwards), found {}",
              text.Name({"engram_num_embeddings"}), engram.layers[i], hashes[i].num_rows(), hashes[i].num_columns(),
              engram.vocab_size, engram.num_embeddings[i]));
  }
}

void ReadEngram(const Scopes& scopes, ModelConfig* config) {
  ConfigReader& text = scopes.text;
  EngramConfig& engram = config->engram;
  constexpr Key kLayers = {"engram_layer_ids"};
  constexpr Key kRows = {"engram_num_embeddings"};
  constexpr Key kNgram = {"engram_max_ngram_size"};
  constexpr Key kVocab = {"engram_vocab_size"};
  constexpr Key kHeads = {"engram_n_heads"};
  constexpr Key kHeadDim = {"engram_head_dim"};
  constexpr Key kPad = {"engram_pad_token_id", "engram_pad_id"};
  constexpr Key kCompressed = {"engram_compressed_vocab_size"};
  if (text.Find(kLayers) != nullptr) {
    engram.layers = text.AscendingInts(kLayers, 0, config->num_layers - 1, kLayersMax);
  }
  if (!engram.present()) {
    for (const Key key : {kRows, kNgram, kVocab, kHeads, kHeadDim, kPad, kCompressed}) text.Ignore(key);
    return;
  }
  engram.num_embeddings = text.Ints(kRows, 1, int64_t{1} << 40, kLayersMax);
  engram.ngram_max = text.Int(kNgram, 2, 16);
  engram.vocab_size = text.Int(kVocab, 2, int64_t{1} << 30);
  engram.num_heads = text.Int(kHeads, 1, 256);
  engram.head_dim = text.Int(kHeadDim, 1, kHeadDimMax);
  engram.pad_token_id = text.Int(kPad, 0, config->vocab_size - 1);
  engram.compressed_vocab_size = text.Int(kCompressed, 1, config->vocab_size);
  if (!text.status().ok()) return;
  if (engram.num_embeddings.size() != engram.layers.size()) {
    return text.Fail(Error(Code::kInvalidArgument, "{}: expected {} entries, as engram_layer_ids has, found {}",
                           text.Name(kRows), engram.layers.size(), engram.num_embeddings.size()));
  }
  if (engram.num_columns() * static_cast<int64_t>(engram.layers.size()) > kEngramColumnsTotalMax) {
    return text.Fail(Error(Code::kInvalidArgument, "{}: {} layers with {} columns each, more than {} columns in all",
                           text.Name(kHeads), engram.layers.size(), engram.num_columns(), kEngramColumnsTotalMax));
  }
  CheckEngramRows(text, engram);
}

void ReadDraft(const Scopes& scopes, ModelConfig* config) {
  ConfigReader& text = scopes.text;
  DraftConfig& draft = config->draft;
  constexpr Key kBlock = {"dspark_block_size"};
  constexpr Key kNoise = {"dspark_noise_token_id"};
  constexpr Key kTargets = {"dspark_target_layer_ids"};
  constexpr Key kRank = {"dspark_markov_rank"};
  constexpr Key kExperts = {"dspark_n_routed_experts"};
  constexpr Key kChosen = {"dspark_num_experts_per_tok", "dspark_n_activated_experts"};
  draft.num_stages = text.IntOr({"num_nextn_predict_layers", "n_mtp_layers"}, 0, 0, 64);
  if (!draft.present()) {
    for (const Key key : {kBlock, kNoise, kTargets, kRank, kExperts, kChosen}) text.Ignore(key);
    return;
  }
  draft.block_size = text.Int(kBlock, 1, 128);
  draft.noise_token_id = text.Int(kNoise, 0, config->vocab_size - 1);
  draft.target_layers = text.AscendingInts(kTargets, 0, config->num_layers - 1, kLayersMax);
  if (draft.target_layers.empty()) {
    text.Fail(Error(Code::kInvalidArgument, "{}: expected at least one layer", text.Name(kTargets)));
  }
  draft.markov_rank = text.Int(kRank, 1, kWidthMax);
  draft.num_experts = text.Int(kExperts, 1, kExpertsMax);
  draft.num_experts_per_token = text.Int(kChosen, 1, draft.num_experts);
}

// `flat`: the keys of inference/config.json, which lie among the others.
VisionConfig ReadVisionValues(ConfigReader& reader, bool flat) {
  const auto key = [&](std::string_view nested_name, std::string_view flat_name) {
    return Key{flat ? flat_name : nested_name};
  };
  VisionConfig vision;
  vision.num_layers = reader.Int(key("num_hidden_layers", "vision_n_layers"), 1, kLayersMax);
  vision.hidden_size = reader.Int(key("hidden_size", "vision_dim"), 1, kWidthMax);
  vision.num_heads = reader.Int(key("num_attention_heads", "vision_n_heads"), 1, kHeadsMax);
  vision.intermediate_size = reader.Int(key("intermediate_size", "vision_inter_dim"), 1, kWidthMax);
  vision.patch_size = reader.Int(key("patch_size", "vision_patch_size"), 1, 1024);
  vision.rope_theta = reader.Real(key("rope_theta", "vision_rope_theta"), 1, 1e12);
  vision.downsample_ratio = reader.Int(key("downsample_ratio", "vision_downsample_ratio"), 1, 64);
  vision.max_image_tokens = reader.Int(key("max_image_tokens", "vision_max_n_token"), 1, int64_t{1} << 20);
  vision.min_pixels = reader.Int(key("min_pixels", "vision_min_pixels"), 0, int64_t{1} << 40);
  vision.max_aspect_ratio = reader.OptionalReal(key("max_wh_ratio", "vision_max_wh_ratio"), 1, 1e6);
  const Key heads = key("num_attention_heads", "vision_n_heads");
  // Each head's two halves hold rows and columns of the rotation, in pairs.
  if (reader.status().ok() && vision.hidden_size % (4 * vision.num_heads) != 0) {
    reader.Fail(Error(Code::kInvalidArgument, "{}: {} heads do not divide hidden size {} into multiples of 4",
                      reader.Name(heads), vision.num_heads, vision.hidden_size));
  }
  return vision;
}

void ReadVision(const Scopes& scopes, ModelConfig* config) {
  if (!scopes.nested && scopes.text.Find({"vision_n_layers"}) != nullptr) {
    config->vision = ReadVisionValues(scopes.text, true);
    return;
  }
  const Json* value = scopes.root.Find({"vision_config"});
  if (value == nullptr || value->IsNull()) return;
  if (!value->IsObject()) {
    return scopes.root.Fail(
        Error(Code::kInvalidArgument, "vision_config: expected an object, found {}", value->KindName()));
  }
  ConfigReader reader(*value, "vision_config.");
  config->vision = ReadVisionValues(reader, false);
  reader.Ignore({"model_type"});
  scopes.Close(reader, &scopes.root);
}

void ReadQuantization(const Scopes& scopes, ModelConfig* config) {
  const Json* value = scopes.root.Find({"quantization_config"});
  if (value == nullptr || value->IsNull()) {
    if (scopes.nested) return;
    const Json* dtype = scopes.root.Find({"dtype"});
    config->quantized = dtype != nullptr && dtype->IsString() && dtype->AsString() == "fp8";
    if (config->quantized) {
      scopes.root.ExpectString({"scale_fmt"}, "ue8m0");
      scopes.root.ExpectString({"expert_dtype"}, "fp4");
    }
    return;
  }
  if (!value->IsObject()) {
    return scopes.root.Fail(
        Error(Code::kInvalidArgument, "quantization_config: expected an object, found {}", value->KindName()));
  }
  ConfigReader reader(*value, "quantization_config.");
  config->quantized = true;
  reader.ExpectString({"quant_method"}, "fp8");
  reader.ExpectString({"scale_fmt"}, "ue8m0");
  reader.ExpectString({"expert_dtype"}, "fp4");
  const std::vector<int64_t> tile = reader.Ints({"weight_block_size"}, 1, 1 << 20, 2);
  if (reader.status().ok() && tile != std::vector<int64_t>{kScaleBlock, kScaleBlock}) {
    reader.Fail(Error(Code::kUnimplemented,
                      "quantization_config.weight_block_size: only [32, 32] is supported, found "
                      "[{}]",
                      fmt::join(tile, ", ")));
  }
  // How activations are quantised is this program's setting; what is quantised is seen from the tensors' types.
  for (const Key key : {Key{"activation_scheme"}, Key{"fmt"}, Key{"modules_to_not_convert"}}) reader.Ignore(key);
  scopes.Close(reader, &scopes.root);
}

void ReadTokens(const Scopes& scopes, ModelConfig* config) {
  ConfigReader& root = scopes.root;
  const int64_t last = config->vocab_size - 1;
  config->bos_token_id = root.OptionalInt({"bos_token_id"}, 0, last);
  config->pad_token_id = root.OptionalInt({"pad_token_id"}, 0, last);
  config->image_token_id = root.OptionalInt({"image_token_id"}, 0, last);
  const Json* eos = root.Find({"eos_token_id"});
  if (eos != nullptr && eos->IsArray()) {
    config->eos_token_ids = root.Ints({"eos_token_id"}, 0, last, 16);
  } else if (const std::optional<int64_t> id = root.OptionalInt({"eos_token_id"}, 0, last); id) {
    config->eos_token_ids = {*id};
  }
}

}  // namespace

bool ModelConfig::IsKvSource(int64_t layer) const {
  return std::binary_search(kv_sources.begin(), kv_sources.end(), layer);
}

bool ModelConfig::IsIndexSource(int64_t layer) const {
  return std::binary_search(index_sources.begin(), index_sources.end(), layer);
}

bool ModelConfig::HasEngram(int64_t layer) const {
  return std::binary_search(engram.layers.begin(), engram.layers.end(), layer);
}

namespace {

int64_t LastAtOrBefore(const std::vector<int64_t>& layers, int64_t layer) {
  const auto after = std::upper_bound(layers.begin(), layers.end(), layer);
  DI_CHECK(after != layers.begin());
  return *(after - 1);
}

}  // namespace

int64_t ModelConfig::KvSourceOf(int64_t layer) const { return LastAtOrBefore(kv_sources, layer); }

int64_t ModelConfig::IndexSourceOf(int64_t layer) const { return LastAtOrBefore(index_sources, layer); }

Result<ParsedConfig> ParseModelConfig(std::string_view json_text) {
  DI_ASSIGN_OR_RETURN(const Json json,
                      ParseJson(json_text, {.size_bytes_max = kConfigSizeMax, .depth_max = 32, .nodes_max = 65536}));
  if (!json.IsObject()) return Error(Code::kInvalidArgument, "expected an object, found {}", json.KindName());
  DI_RETURN_IF_ERROR(CheckArchitecture(json));
  const Json* text_json = json.Find("text_config");
  if (text_json != nullptr && !text_json->IsObject()) {
    return Error(Code::kInvalidArgument, "text_config: expected an object, found {}", text_json->KindName());
  }
  ConfigReader root(json, "");
  std::optional<ConfigReader> nested_text;
  if (text_json != nullptr) nested_text.emplace(*text_json, "text_config.");
  ParsedConfig parsed;
  const Scopes scopes = {root, nested_text ? *nested_text : root, nested_text.has_value(), parsed.unknown_keys};

  using Part = void (*)(const Scopes&, ModelConfig*);
  constexpr Part kParts[] = {ReadStack,   ReadAttention, ReadPositions, ReadDraft,        ReadCompressed,
                             ReadExperts, ReadEngram,    ReadVision,    ReadQuantization, ReadTokens};
  for (const Part part : kParts) {
    part(scopes, &parsed.config);
    // In order: later parts rely on the ranges that earlier ones checked.
    DI_RETURN_IF_ERROR(scopes.text.status());
    DI_RETURN_IF_ERROR(root.status());
  }
  // Settings without influence on what is computed here.
  for (const Key key : {Key{"architectures"}, Key{"model_type"}, Key{"dtype", "torch_dtype"},
                        Key{"transformers_version"}, Key{"text_config"}, Key{"attention_dropout"},
                        Key{"initializer_range"}, Key{"use_cache"}, Key{"scale_fmt"}, Key{"expert_dtype"}}) {
    root.Ignore(key);
    scopes.text.Ignore(key);
  }
  if (scopes.nested) scopes.Close(scopes.text, &root);
  scopes.Close(root, &root);
  return parsed;
}

}  // namespace deepinfer::checkpoint
