// SPDX-License-Identifier: Apache-2.0
// deepinfer info: what a checkpoint is and what it needs.
#include <algorithm>
#include <map>

#include "checkpoint/identity.h"
#include "cli/cli.h"
#include "cli/common.h"
#include "engine/engine_config.h"
#include "engine/kv_memory.h"

namespace deepinfer::cli {
namespace {

struct Bytes {
  int64_t tensors = 0;
  int64_t bytes = 0;
};

// Kinds by the part of the model that a tensor belongs to.
std::string KindOf(std::string_view name) {
  const auto has = [&](std::string_view part) { return name.find(part) != std::string_view::npos; };
  if (name.starts_with("mtp.")) return "draft";
  if (name.starts_with("vision.") || name.starts_with("aligner.") || name.starts_with("image_")) return "vision";
  if (has(".engram.")) return "engram";
  if (has(".ffn.experts.")) return "routed experts";
  if (has(".ffn.")) return "router, shared experts";
  if (has(".attn.")) return "attention";
  if (has(".hc_")) return "hyper-connections";
  if (name.starts_with("embed.") || name.starts_with("head.")) return "embedding, head";
  return "norms";
}

Json Entry(std::string_view key, Bytes bytes) {
  Json json(Json::Object{});
  json.Members().emplace_back("kind", Json(std::string(key)));
  json.Members().emplace_back("tensors", Json::Integer(bytes.tensors));
  json.Members().emplace_back("bytes", Json::Integer(bytes.bytes));
  return json;
}

std::string List(const std::vector<int64_t>& values) {
  std::string text;
  for (const int64_t value : values) text += (text.empty() ? "" : " ") + std::to_string(value);
  return text.empty() ? "none" : text;
}

Json Geometry(const checkpoint::ModelConfig& c) {
  Json json(Json::Object{});
  const auto number = [&](const char* key, int64_t value) { json.Members().emplace_back(key, Json::Integer(value)); };
  const auto list = [&](const char* key, const std::vector<int64_t>& values) {
    json.Members().emplace_back(key, Json(List(values)));
  };
  number("layers", c.num_layers);
  number("hidden", c.hidden_size);
  number("vocabulary", c.vocab_size);
  number("context_max", c.max_positions);
  number("streams", c.hc_mult);
  number("heads", c.num_heads);
  number("head_dim", c.head_dim);
  number("rope_dim", c.rope_dim);
  number("window", c.window);
  list("compress_ratios", c.compress_ratios);
  list("kv_sources", c.kv_sources);
  list("index_sources", c.index_sources);
  number("index_topk", c.index_topk);
  number("experts", c.num_experts);
  number("experts_per_token", c.num_experts_per_token);
  number("expert_width", c.moe_intermediate_size);
  list("engram_layers", c.engram.layers);
  number("draft_stages", c.draft.num_stages);
  return json;
}

std::string Human(int64_t bytes) {
  const char* units[] = {"B", "KB", "MB", "GB", "TB"};
  auto value = static_cast<double>(bytes);
  int unit = 0;
  while (value >= 1000 && unit < 4) value /= 1000, ++unit;
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, units[unit]);
}

// How an engine would divide the memory for caches: docs of the parts in engine/kv_memory.h.
Json Pool(const InfoOptions& options, const checkpoint::Checkpoint& checkpoint) {
  const checkpoint::ModelConfig& model = checkpoint.config();
  EngineOptions engine_options;
  engine_options.context_max = options.model.context;
  engine_options.kv_memory_bytes = options.kv_memory_bytes;
  const auto draft_rows = static_cast<int32_t>(checkpoint.has_draft() ? model.draft.block_size : 0);
  const Result<sched::Config> config = engine::MakeConfig(engine_options, model, draft_rows);
  Json json(Json::Object{});
  const auto number = [&](const char* key, int64_t value) { json.Members().emplace_back(key, Json::Integer(value)); };
  number("memory_bytes", options.kv_memory_bytes);
  if (!config.ok()) {
    json.Members().emplace_back("error", Json(config.status().message()));
    return json;
  }
  const int64_t page_bytes = engine::PageBytes(model);
  const int64_t early_layers = config->layers.first_late();
  const int64_t late_layers = model.num_layers - early_layers + (draft_rows > 0 ? model.draft.num_stages : 0);
  number("requests_running", config->slots);
  number("context_max", config->length_max);
  number("blocks", config->blocks);
  number("block_bytes", engine::BlockBytes(model));
  number("tokens_that_fit", int64_t{config->blocks} * backend::kBlockTokens);
  number("window_page_bytes", page_bytes);
  number("pages_early", config->pages[kv::kEarly]);
  number("pages_late", config->pages[kv::kLate]);
  number("window_bytes", (config->pages[kv::kEarly] * early_layers + config->pages[kv::kLate] * late_layers) * page_bytes);
  number("snapshots", std::max(config->snapshot_pages[kv::kEarly], config->snapshot_pages[kv::kLate]) / config->pages_per_point());
  number("snapshot_bytes", config->pages_per_point() * (early_layers + late_layers) * page_bytes);
  return json;
}

Json Describe(const checkpoint::Checkpoint& checkpoint, const std::string& identity, const std::string& numeric) {
  std::map<std::string, Bytes> by_kind, by_type;
  Bytes total;
  for (const checkpoint::SafetensorsFile& shard : checkpoint.shards()) {
    for (const checkpoint::TensorInfo& tensor : shard.header().tensors) {
      for (Bytes* bytes : {&by_kind[KindOf(tensor.name)], &by_type[std::string(DTypeName(tensor.dtype))], &total}) {
        ++bytes->tensors;
        bytes->bytes += static_cast<int64_t>(tensor.end - tensor.begin);
      }
    }
  }
  const checkpoint::ModelConfig& config = checkpoint.config();
  const int64_t block_bytes = engine::BlockBytes(config);
  const int64_t window_bytes = config.num_layers * config.window * (config.head_dim + config.head_dim / 32);
  Json json(Json::Object{});
  auto& members = json.Members();
  members.emplace_back("directory", Json(checkpoint.directory()));
  members.emplace_back("architecture", Json("DeepseekV41ForCausalLM"));
  members.emplace_back("geometry", Geometry(config));
  Json kinds(Json::Array{}), types(Json::Array{});
  for (const auto& [kind, bytes] : by_kind) kinds.Items().push_back(Entry(kind, bytes));
  for (const auto& [type, bytes] : by_type) types.Items().push_back(Entry(type, bytes));
  members.emplace_back("by_part", std::move(kinds));
  members.emplace_back("by_type", std::move(types));
  members.emplace_back("weights", Entry("all", total));
  members.emplace_back("global_cache_bytes_per_token",
                       Json::Double(static_cast<double>(block_bytes) / backend::kBlockTokens));
  members.emplace_back("global_cache_bytes_at_context_max",
                       Json::Integer((config.max_positions + backend::kBlockTokens - 1) / backend::kBlockTokens * block_bytes));
  members.emplace_back("window_bytes_per_sequence", Json::Integer(window_bytes));
  members.emplace_back("draft", Json(checkpoint.has_draft() ? "present" : "absent"));
  members.emplace_back("vision", Json(checkpoint.has_vision() ? "present" : "absent"));
  members.emplace_back("model_identity", Json(identity));
  members.emplace_back("numeric_identity", Json(numeric));
  return json;
}

// "key: value" lines; nested parts indented; byte counts for people.
void AppendText(const Json& json, const std::string& indent, std::string* out) {
  for (const auto& [key, value] : json.Members()) {
    if (value.IsObject() && value.Find("kind") == nullptr) {
      *out += indent + key + ":\n";
      AppendText(value, indent + "  ", out);
    } else if (value.IsArray() || value.IsObject()) {
      *out += indent + key + ":\n";
      const Json::Array entries = value.IsArray() ? value.Items() : Json::Array{value};
      for (const Json& entry : entries) {
        *out += fmt::format("{}  {:<24} {:>7} tensors  {:>10}\n", indent, entry.Find("kind")->AsString(),
                            entry.Find("tensors")->Literal(), Human(*entry.Find("bytes")->ToInt64()));
      }
    } else {
      const std::string text = value.IsString() ? value.AsString() : value.Literal();
      const bool is_bytes = key.find("bytes") != std::string::npos && value.ToInt64() && *value.ToInt64() >= 1000;
      *out += fmt::format("{}{}: {}{}\n", indent, key, text, is_bytes ? " (" + Human(*value.ToInt64()) + ")" : "");
    }
  }
}

}  // namespace

Result<int> Info(const InfoOptions& options) {
  DI_ASSIGN_OR_RETURN(const std::string directory, FindModel(options.model));
  DI_ASSIGN_OR_RETURN(const checkpoint::Checkpoint checkpoint, checkpoint::Checkpoint::Open(directory));
  for (const std::string& warning : checkpoint.warnings()) Note("warning: {}\n", warning);
  DI_ASSIGN_OR_RETURN(const std::string identity, checkpoint::ModelIdentity(checkpoint));
  DI_ASSIGN_OR_RETURN(const auto backend, engine::CreateBackend({.name = BackendName(options.model),
                                                                 .num_threads = options.model.threads,
                                                                 .variant = options.model.variant}));
  DI_ASSIGN_OR_RETURN(const backend::Activations activations, engine::ParseActivations(options.model.activations));
  Json json = Describe(checkpoint, identity, engine::NumericIdentity(*backend, activations));
  json.Members().emplace_back("cache_pool", Pool(options, checkpoint));
  std::string text;
  if (options.json) {
    text = WriteJson(json) + "\n";
  } else {
    AppendText(json, "", &text);
  }
  DI_RETURN_IF_ERROR(Print(text));
  return kExitOk;
}

}  // namespace deepinfer::cli
