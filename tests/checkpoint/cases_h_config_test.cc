// SPDX-License-Identifier: Apache-2.0
// Property: what a config asks for and what the files hold must fit; where they do not, or the config is absurd,
// opening is refused at once with a message that names the key or the tensor.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>

#include "checkpoint_files.h"
#include "core/file.h"

namespace deepinfer::checkpoint {
namespace {

using core::TemporaryDirectory;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::string Rename(std::string name, std::string_view from, std::string_view to) {
  DI_CHECK(name.starts_with(from));
  return std::string(to) + name.substr(from.size());
}

std::string ErrorOf(const CheckpointFiles& files) {
  const TemporaryDirectory dir;
  files.Write(dir.path());
  return OpenError(dir.path());
}

// The error that the config alone gives, without a directory.
Status ConfigStatus(const CheckpointFiles& files) { return ParseModelConfig(WriteJson(files.config)).status(); }

TEST(CasesH, H08_PrefixedNames) {
  for (const char* prefix : {"model.", "language_model."}) {
    CheckpointFiles files = CheckpointFiles::Golden("model/base");
    Tensors prefixed;
    for (const auto& [name, tensor] : files.tensors) prefixed[prefix + name] = tensor;
    files.tensors = prefixed;
    EXPECT_THAT(ErrorOf(files), AllOf(HasSubstr("missing tensors: embed.weight"), HasSubstr("unexpected ones:"),
                                      HasSubstr(std::string(prefix) + "embed.weight")));
  }
}

TEST(CasesH, H08_OneRenamedOneAbsentOneExtra) {
  {
    CheckpointFiles files = CheckpointFiles::Golden("model/base");
    auto node = files.tensors.extract("layers.1.hc_attn_fn");
    node.key() = Rename(node.key(), "layers.1.hc_", "layers.1.attn_hc.");
    files.tensors.insert(std::move(node));
    EXPECT_THAT(ErrorOf(files),
                AllOf(HasSubstr("1 missing tensors: layers.1.hc_attn_fn"), HasSubstr("layers.1.attn_hc.attn_fn")));
  }
  for (const char* name : {"layers.2.ffn.gate.bias", "layers.2.ffn.gate.bias_vl", "layers.0.attn.wq_a.scale",
                           "layers.1.ffn.experts.3.w2.weight", "layers.1.ffn.experts.3.w2.scale", "norm.weight"}) {
    CheckpointFiles files = CheckpointFiles::Golden("model/base");
    ASSERT_EQ(files.tensors.erase(name), 1u);
    EXPECT_THAT(ErrorOf(files), HasSubstr(std::string("1 missing tensors: ") + name));
  }
  CheckpointFiles files = CheckpointFiles::Golden("model/base");
  files.tensors["layers.0.hc_head_fn"] = files.tensors["norm.weight"];
  const TemporaryDirectory dir;
  files.Write(dir.path());
  const Result<Checkpoint> checkpoint = Checkpoint::Open(dir.path());
  ASSERT_TRUE(checkpoint.ok());
  EXPECT_THAT(AllWarnings(*checkpoint), HasSubstr("1 unexpected tensors, not used: layers.0.hc_head_fn"));
}

TEST(CasesH, H08_NamesCannotSpeakToTheTerminal) {
  CheckpointFiles files = CheckpointFiles::Golden("model/base");
  files.tensors["\x1b[31mred"] = files.tensors["norm.weight"];
  const TemporaryDirectory dir;
  files.Write(dir.path());
  const Result<Checkpoint> checkpoint = Checkpoint::Open(dir.path());
  ASSERT_TRUE(checkpoint.ok());
  EXPECT_THAT(AllWarnings(*checkpoint), HasSubstr("not used: ?[31mred"));
}

TEST(CasesH, H08_DraftAbsent) {
  CheckpointFiles files = CheckpointFiles::Golden("dspark");
  {
    const TemporaryDirectory dir;
    files.Write(dir.path());
    EXPECT_TRUE(Checkpoint::Open(dir.path())->has_draft());
  }
  // Parts that are missing, misshapen or of another type: no draft, and a warning that names them. Answers need none of it.
  const auto expect_no_draft = [](const CheckpointFiles& damaged, const std::string& warning) {
    const TemporaryDirectory dir;
    damaged.Write(dir.path());
    const Result<Checkpoint> checkpoint = Checkpoint::Open(dir.path());
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    EXPECT_FALSE(checkpoint->has_draft());
    EXPECT_THAT(AllWarnings(*checkpoint), HasSubstr(warning));
    EXPECT_THAT(checkpoint->draft_problem(), HasSubstr(warning));
    EXPECT_THAT(AllWarnings(*checkpoint), Not(HasSubstr("unexpected")));
  };
  CheckpointFiles half = files;
  std::erase_if(half.tensors, [](const auto& item) { return item.first.starts_with("mtp.1."); });
  expect_no_draft(half, "missing tensors: mtp.1.");
  half = files;
  half.tensors["mtp.0.main_norm.weight"].shape = Shape({2, 16});
  expect_no_draft(half, "the draft model is not used: mtp.0.main_norm.weight: expected BF16 [32], found BF16 [2, 16]");
  std::erase_if(files.tensors, [](const auto& item) { return item.first.starts_with("mtp."); });
  const TemporaryDirectory dir;
  files.Write(dir.path());
  const Result<Checkpoint> checkpoint = Checkpoint::Open(dir.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  EXPECT_FALSE(checkpoint->has_draft());
  EXPECT_THAT(AllWarnings(*checkpoint), HasSubstr("no draft model"));
}

TEST(CasesH, H08_WrongTypeOrShape) {
  CheckpointFiles files = CheckpointFiles::Golden("model/base");
  files.tensors["layers.1.attn.wkv.weight"].shape = Shape({64, 32});
  EXPECT_THAT(ErrorOf(files), HasSubstr("layers.1.attn.wkv.weight: expected F8_E4M3 [32, 64] or BF16 [32, 64], found "
                                        "F8_E4M3 [64, 32] in model.safetensors"));
  files = CheckpointFiles::Golden("model/base");
  files.tensors["layers.1.attn.attn_sink"].dtype = DType::kI32;
  EXPECT_THAT(ErrorOf(files), HasSubstr("layers.1.attn.attn_sink: expected F32 [4], found I32 [4] in"));
  files = CheckpointFiles::Golden("model/base");
  files.tensors["layers.1.attn.wkv.scale"].dtype = DType::kU8;
  EXPECT_THAT(ErrorOf(files), HasSubstr("layers.1.attn.wkv.scale: expected F8_E8M0 [1, 2], found U8 [1, 2] in"));
  files = CheckpointFiles::Golden("model/base");
  files.tensors["layers.0.ffn.experts.0.w1.weight"].shape = Shape({16, 64});
  EXPECT_THAT(ErrorOf(files), HasSubstr("layers.0.ffn.experts.0.w1.weight: expected I8 [32, 32] or BF16 [32, 64]"));
}

// A BF16 matrix beside a scale: whether the scale still applies cannot be told.
TEST(CasesH, H08_ScaleOfAnUnquantisedMatrix) {
  CheckpointFiles files = CheckpointFiles::Golden("model/base");
  TensorData& weight = files.tensors["layers.1.attn.wkv.weight"];
  weight = {DType::kBF16, weight.shape, std::string(2 * weight.bytes.size(), '\0')};
  EXPECT_THAT(ErrorOf(files), AllOf(HasSubstr("layers.1.attn.wkv.scale"), HasSubstr("is BF16")));
  files.tensors.erase("layers.1.attn.wkv.scale");
  EXPECT_EQ(ErrorOf(files), "");
}

struct TiedCase {
  std::optional<bool> tie;
  enum { kAbsent, kEqual, kOther } head;
  std::string error;  // "" where it loads
};

TEST(CasesH, H09_TiedEmbeddings) {
  const CheckpointFiles base = CheckpointFiles::Golden("model/base");
  const TiedCase kCases[] = {
      {true, TiedCase::kAbsent, ""},
      {true, TiedCase::kEqual, ""},
      {true, TiedCase::kOther, "head.weight: differs from embed.weight"},
      {false, TiedCase::kAbsent, "1 missing tensors: head.weight"},
      {std::nullopt, TiedCase::kOther, ""},
  };
  for (const TiedCase& c : kCases) {
    CheckpointFiles files = base;
    files.Remove("tie_word_embeddings");
    if (c.tie) files.Set("tie_word_embeddings", Json(*c.tie));
    if (c.head == TiedCase::kAbsent) files.tensors.erase("head.weight");
    if (c.head == TiedCase::kEqual) files.tensors["head.weight"] = files.tensors["embed.weight"];
    const TemporaryDirectory dir;
    files.Write(dir.path());
    const Result<Checkpoint> checkpoint = Checkpoint::Open(dir.path());
    EXPECT_EQ(checkpoint.ok(), c.error.empty());
    EXPECT_THAT(checkpoint.status().message(), HasSubstr(c.error));
    if (!checkpoint.ok()) continue;
    const std::string& expected = files.tensors[c.head == TiedCase::kAbsent ? "embed.weight" : "head.weight"].bytes;
    const auto head = checkpoint->Tensor("head.weight").bytes();
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(head.data()), head.size()), expected);
  }
}

TEST(CasesH, H09_QuantisedHeadBesidePlainEmbedding) {
  CheckpointFiles files = CheckpointFiles::Golden("model/base");
  files.tensors["head.weight"] = {DType::kF8E4M3, Shape({128, 64}), std::string(128 * 64, '\x38')};
  EXPECT_THAT(ErrorOf(files), HasSubstr("missing tensors: head.scale"));
  files.tensors["head.scale"] = {DType::kF8E8M0, Shape({4, 2}), std::string(8, '\x7f')};
  const TemporaryDirectory dir;
  files.Write(dir.path());
  const Result<Checkpoint> checkpoint = Checkpoint::Open(dir.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  EXPECT_EQ(checkpoint->Matrix("head").format, StoredMatrix::Format::kFP8);
  EXPECT_EQ(checkpoint->Matrix("embed").format, StoredMatrix::Format::kBF16);
}

struct SettingCase {
  std::string key;
  std::function<void(CheckpointFiles*)> change;
};

SettingCase With(std::string key, std::string_view json) {
  return {key, [key, value = *ParseJson(json)](CheckpointFiles* files) { files->Set(key, value); }};
}

void ExpectRefused(const std::vector<SettingCase>& cases, std::string_view folder) {
  for (const SettingCase& c : cases) {
    CheckpointFiles files = CheckpointFiles::Golden(folder);
    c.change(&files);
    SCOPED_TRACE(WriteJson(*files.config.Find("text_config")));
    const double start = CpuSeconds();
    const Status status = ConfigStatus(files);
    const double seconds = CpuSeconds() - start;
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(status.message(), HasSubstr(c.key));
    EXPECT_LT(seconds, 1.0);
  }
}

TEST(CasesH, H11_Spellings) {
  const auto rename = [](std::string from, std::string to) {
    return SettingCase{from, [from, to](CheckpointFiles* files) {
                         files->Set(to, *files->config.Find("text_config")->Find(from));
                         files->Remove(from);
                       }};
  };
  ExpectRefused(
      {rename("n_routed_experts", "num_experts"), rename("n_routed_experts", "num_local_experts"),
       rename("hidden_size", "d_model"), rename("num_hidden_layers", "num_layers"), With("n_routed_experts", "\"6\""),
       With("n_routed_experts", "10.0"), With("n_routed_experts", "1e1"), With("n_routed_experts", "null"),
       With("n_routed_experts", "true"), With("n_routed_experts", "[6]"), With("rms_norm_eps", "\"1e-20\""),
       With("rms_norm_eps", "-1"), With("tie_word_embeddings", "1"), With("rope_parameters", "{\"rope_theta\": 5}")},
      "model/base");
  // Both spellings at once, whatever they say.
  CheckpointFiles files = CheckpointFiles::Golden("model/base");
  files.Set("dim", 64);
  EXPECT_THAT(ConfigStatus(files).message(), HasSubstr("text_config.hidden_size: given twice"));
}

TEST(CasesH, H11_EveryRequiredKeyIsNamedWhenAbsent) {
  const CheckpointFiles whole = CheckpointFiles::Golden("dspark");
  CheckpointFiles engram = CheckpointFiles::Golden("model/engram");
  int required = 0;
  for (const CheckpointFiles& files : {whole, engram}) {
    for (const auto& [key, value] : files.config.Find("text_config")->Members()) {
      CheckpointFiles without = files;
      without.Remove(key);
      const Status status = ConfigStatus(without);
      if (status.ok()) continue;
      ++required;
      EXPECT_THAT(status.message(), HasSubstr(key));
    }
  }
  EXPECT_GT(required, 60);
}

TEST(CasesH, H11_UnknownKeysAreToldAndHarmless) {
  CheckpointFiles files = CheckpointFiles::Golden("model/base");
  files.Set("shiny_new_setting", 3);
  files.config.Find("text_config")->Find("rope_scaling")->Members().emplace_back("mscale", Json::Integer(1));
  files.config.Members().emplace_back("torch_dtype_hint", Json("x"));
  const Result<ParsedConfig> parsed = ParseModelConfig(WriteJson(files.config));
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed->unknown_keys, (std::vector<std::string>{"text_config.rope_scaling.mscale",
                                                            "text_config.shiny_new_setting", "torch_dtype_hint"}));
}

TEST(CasesH, H11_TorchDtypeIsDtype) {
  CheckpointFiles files = CheckpointFiles::Golden("model/base");
  std::erase_if(files.config.Members(), [](const Json::Member& member) { return member.first == "dtype"; });
  files.config.Members().emplace_back("torch_dtype", Json("bfloat16"));
  const Result<ParsedConfig> parsed = ParseModelConfig(WriteJson(files.config));
  ASSERT_TRUE(parsed.ok());
  EXPECT_TRUE(parsed->unknown_keys.empty());
}

// text_config's settings at the top, as older files have them.
TEST(CasesH, H11_SettingsAtTheTop) {
  CheckpointFiles files = CheckpointFiles::Golden("model/engram");
  const ModelConfig nested = ParseModelConfig(WriteJson(files.config))->config;
  Json flat = files.config;
  const Json text = *flat.Find("text_config");
  std::erase_if(flat.Members(), [](const Json::Member& member) { return member.first == "text_config"; });
  for (const auto& [key, value] : text.Members()) {
    if (key != "model_type") flat.Members().emplace_back(key, value);
  }
  const Result<ParsedConfig> parsed = ParseModelConfig(WriteJson(flat));
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  EXPECT_EQ(parsed->unknown_keys, std::vector<std::string>());
  EXPECT_EQ(parsed->config.hidden_size, nested.hidden_size);
  EXPECT_EQ(parsed->config.compress_ratios, nested.compress_ratios);
  EXPECT_EQ(parsed->config.engram.num_embeddings, nested.engram.num_embeddings);
  EXPECT_EQ(parsed->config.quantized, nested.quantized);
}

TEST(CasesH, H11_CountsAreHeldAgainstTheTensors) {
  CheckpointFiles files = CheckpointFiles::Golden("model/base");
  files.Set("n_routed_experts", 5);
  EXPECT_THAT(ErrorOf(files), HasSubstr("layers.0.ffn.gate.weight: expected BF16 [5, 64], found BF16 [6, 64]"));
  files = CheckpointFiles::Golden("model/base");
  files.Set("num_hidden_layers", 2);
  files.Set("compress_ratios", *ParseJson("[0,2]"));
  files.Set("kv_source_layer_ids", *ParseJson("[1]"));
  files.Set("index_source_layer_ids", *ParseJson("[1]"));
  files.Set("candidate_source_layer_id", Json());
  const TemporaryDirectory dir;
  files.Write(dir.path());
  const Result<Checkpoint> checkpoint = Checkpoint::Open(dir.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  EXPECT_THAT(AllWarnings(*checkpoint), HasSubstr("unexpected tensors, not used: layers.2."));
}

TEST(CasesH, H15_AbsurdNumbers) {
  std::vector<SettingCase> cases;
  for (const char* value : {"1000000", "0", "-1", "9223372036854775808", "1e400"}) {
    for (const char* key :
         {"num_hidden_layers", "vocab_size", "hidden_size", "moe_intermediate_size", "num_attention_heads", "head_dim",
          "qk_rope_head_dim", "q_lora_rank", "o_lora_rank", "o_groups", "n_routed_experts", "num_experts_per_tok",
          "index_n_heads", "index_head_dim", "candidate_block_size", "hc_mult", "hc_sinkhorn_iters"}) {
      if (std::string(value) == "1000000" && std::string(key) == "vocab_size") continue;
      if (std::string(value) == "1e400") continue;  // refused by the JSON parser, below
      cases.push_back(With(key, value));
    }
  }
  for (const char* key : {"sliding_window", "index_topk", "candidate_topk_blocks", "max_position_embeddings"}) {
    for (const char* value : {"0", "-1", "9223372036854775807"}) cases.push_back(With(key, value));
  }
  for (const char* key : {"rope_theta", "compress_rope_theta", "swiglu_limit", "routed_scaling_factor", "hc_eps"}) {
    for (const char* value : {"-1", "1e300", "\"1\"", "null"}) cases.push_back(With(key, value));
  }
  ExpectRefused(cases, "model/base");
}

TEST(CasesH, H15_ListsThatDoNotFit) {
  ExpectRefused(
      {
          With("compress_ratios", "[0,2]"),
          With("compress_ratios", "[0,2,1,1]"),
          With("compress_ratios", "[0,2,-1]"),
          With("compress_ratios", "[0,2,3]"),
          With("compress_ratios", "[0,2,256]"),
          With("compress_ratios", "[1,2,1]"),
          With("compress_ratios", "{}"),
          With("compress_ratios", "[0,2,\"1\"]"),
          With("kv_source_layer_ids", "[1,3]"),
          With("kv_source_layer_ids", "[2,1]"),
          With("kv_source_layer_ids", "[1,1]"),
          With("kv_source_layer_ids", "[0,1]"),
          With("kv_source_layer_ids", "[-1,1]"),
          With("index_source_layer_ids", "[1,3]"),
          With("index_source_layer_ids", "[2,1]"),
          With("index_source_layer_ids", "[0,1,2]"),
          With("candidate_source_layer_id", "0"),
          With("candidate_source_layer_id", "3"),
          With("candidate_source_layer_id", "-2"),
          With("num_experts_per_tok", "7"),
          With("o_groups", "3"),
          With("engram_layer_ids", "[3]"),
          With("engram_layer_ids", "[-1]"),
          With("num_key_value_heads", "4"),
          With("n_shared_experts", "2"),
          With("scoring_func", "\"softmax\""),
          With("hidden_act", "\"gelu\""),
          With("norm_topk_prob", "false"),
          With("topk_method", "\"greedy\""),
          With("attention_bias", "true"),
          With("rope_scaling", "[]"),
          With("rope_scaling", "{\"rope_type\":\"linear\",\"factor\":4}"),
      },
      "model/base");
  // Not in the index sources, named under the key that asks for it.
  CheckpointFiles files = CheckpointFiles::Golden("model/base");
  files.Set("index_source_layer_ids", *ParseJson("[1]"));
  EXPECT_THAT(ConfigStatus(files).message(), HasSubstr("kv_source_layer_ids: layer 2"));
  // A layer whose source has another ratio would read latents at the wrong places.
  files = CheckpointFiles::Golden("model/base");
  files.Set("kv_source_layer_ids", *ParseJson("[1]"));
  EXPECT_THAT(ConfigStatus(files).message(), HasSubstr("compress_ratios: layer 2: ratio 1 differs from 2"));
}

TEST(CasesH, H15_EngramAndDraft) {
  ExpectRefused(
      {With("engram_num_embeddings", "[304]"), With("engram_num_embeddings", "[304,462,1]"),
       With("engram_num_embeddings", "[304,463]"), With("engram_vocab_size", "42"), With("engram_layer_ids", "[1,4]"),
       With("engram_layer_ids", "[2,1]"), With("engram_pad_token_id", "128"), With("engram_max_ngram_size", "1"),
       With("engram_max_ngram_size", "1000000"), With("engram_n_heads", "0"), With("engram_n_heads", "256"),
       With("engram_compressed_vocab_size", "129"), With("engram_head_dim", "-32")},
      "model/engram");
  ExpectRefused(
      {With("dspark_target_layer_ids", "[1,4]"), With("dspark_target_layer_ids", "[]"),
       With("dspark_target_layer_ids", "[3,2]"), With("dspark_block_size", "0"), With("dspark_noise_token_id", "128"),
       With("dspark_num_experts_per_tok", "7"), With("dspark_markov_rank", "0"), With("num_nextn_predict_layers", "-1"),
       With("num_nextn_predict_layers", "1000000")},
      "dspark");
  CheckpointFiles files = CheckpointFiles::Golden("dspark");
  files.Set("num_nextn_predict_layers", 2);
  EXPECT_THAT(ConfigStatus(files).message(), HasSubstr("compress_ratios: expected 6 entries"));
  files = CheckpointFiles::Golden("dspark");
  files.Set("compress_ratios", *ParseJson("[0,2,1,1,0,0,1]"));
  EXPECT_THAT(ConfigStatus(files).message(), HasSubstr("compress_ratios: entry 6: expected 0 for a draft stage"));
}

TEST(CasesH, H15_HostileJson) {
  for (const std::string& text :
       {std::string(1000000, '['), std::string(), std::string("[]"), std::string("null"), std::string("{"),
        std::string("{\"architectures\": []}"), std::string("{\"architectures\": [1]}"), std::string("{}"),
        std::string("{\"architectures\":[\"DeepseekV41ForCausalLM\"],\"text_config\":[]}"),
        std::string("{\"architectures\":[\"DeepseekV41ForCausalLM\"]}"), std::string("\xff"),
        "{\"a\":" + std::string(100, '[') + std::string(100, ']') + "}"}) {
    const double start = CpuSeconds();
    EXPECT_FALSE(ParseModelConfig(text).ok()) << text.substr(0, 80);
    const double seconds = CpuSeconds() - start;
    EXPECT_LT(seconds, 1.0);
  }
  // A config of 1 GB (sparse) is not even read.
  const TemporaryDirectory dir;
  WriteText(dir / "config.json", "{");
  std::filesystem::resize_file(dir / "config.json", uint64_t{1} << 30);
  EXPECT_THAT(OpenError(dir.path()), AllOf(HasSubstr("config.json"), HasSubstr("1073741824 bytes")));
}

TEST(CasesH, H15_OtherArchitectures) {
  const auto named = [](std::string_view architecture, std::string_view type) {
    return ParseModelConfig(fmt::format(R"({{"architectures":["{}"],"model_type":"{}"}})", architecture, type))
        .status();
  };
  const Status v40 = named("DeepseekV4ForCausalLM", "deepseek_v4");
  EXPECT_EQ(v40.code(), Code::kUnimplemented);
  EXPECT_THAT(v40.message(), AllOf(HasSubstr("DeepSeek-V4.0"), HasSubstr("DeepseekV4ForCausalLM")));
  EXPECT_THAT(ParseModelConfig(R"({"model_type":"deepseek_v4"})").status().message(), HasSubstr("DeepSeek-V4.0"));
  const Status llama = named("LlamaForCausalLM", "llama");
  EXPECT_EQ(llama.code(), Code::kUnimplemented);
  EXPECT_THAT(llama.message(), HasSubstr("LlamaForCausalLM"));
  EXPECT_THAT(named("Evil\\u001b[31m", "x").message(), AllOf(HasSubstr("\\u001b"), Not(HasSubstr("\x1b"))));
}

}  // namespace
}  // namespace deepinfer::checkpoint
