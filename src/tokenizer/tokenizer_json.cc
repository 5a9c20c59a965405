// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/tokenizer_json.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "core/json.h"
#include "tokenizer/byte_level.h"

namespace deepinfer {
namespace {

// What ByteLevel splits by when its use_regex is set: GPT-2's pattern.
constexpr const char* kByteLevelPattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

constexpr size_t kSplitsMax = 16;
constexpr size_t kPatternBytesMax = 64 << 10;

std::string Quoted(std::string_view text) {
  std::string out;
  AppendJsonString(text.substr(0, 64), false, &out);
  return out;
}

Status Wrong(std::string_view where, std::string_view expected, const Json* found) {
  return Error(Code::kDataLoss, "{}: expected {}, found {}", where, expected,
               found == nullptr ? "nothing" : found->KindName());
}

bool AbsentOrNull(const Json* value) { return value == nullptr || value->IsNull(); }

// An optional boolean member; false where it is absent.
Result<bool> Flag(const Json& object, std::string_view where, std::string_view key) {
  const Json* value = object.Find(key);
  if (AbsentOrNull(value)) return false;
  if (!value->IsBool()) return Wrong(fmt::format("{}.{}", where, key), "a boolean", value);
  return value->AsBool();
}

Result<std::string> TypeOf(const Json& object, std::string_view where) {
  if (!object.IsObject()) return Wrong(where, "an object", &object);
  const Json* type = object.Find("type");
  if (type == nullptr || !type->IsString()) return Wrong(fmt::format("{}.type", where), "a string", type);
  return type->AsString();
}

class Parser {
 public:
  explicit Parser(const TokenizerLimits& limits) : limits_(limits) {}

  Result<TokenizerSpec> Parse(const Json& root) {
    if (!root.IsObject()) return Wrong("the file", "an object", &root);
    for (const char* key : {"truncation", "padding"}) {
      if (!AbsentOrNull(root.Find(key))) {
        return Error(Code::kUnimplemented, "{}: is set; it would change every encoding (set it to null)", key);
      }
    }
    DI_RETURN_IF_ERROR(CheckNormalizer(root.Find("normalizer")));
    const Json* pre_tokenizer = root.Find("pre_tokenizer");
    if (pre_tokenizer == nullptr) return Wrong("pre_tokenizer", "an object", nullptr);
    DI_RETURN_IF_ERROR(ReadPreTokenizer(*pre_tokenizer, "pre_tokenizer", false));
    if (!byte_level_seen_) {
      return Error(Code::kUnimplemented, "pre_tokenizer: has no ByteLevel step; only byte-level BPE is supported");
    }
    DI_RETURN_IF_ERROR(CheckDecoder(root.Find("decoder")));
    const Json* model = root.Find("model");
    if (model == nullptr) return Wrong("model", "an object", nullptr);
    DI_RETURN_IF_ERROR(ReadModel(*model));
    DI_RETURN_IF_ERROR(ReadAddedTokens(root.Find("added_tokens")));
    return std::move(spec_);
  }

 private:
  Status CheckNormalizer(const Json* normalizer) {
    if (AbsentOrNull(normalizer)) return Status();
    DI_ASSIGN_OR_RETURN(const std::string type, TypeOf(*normalizer, "normalizer"));
    if (type != "Sequence") {
      return Error(Code::kUnimplemented, "normalizer: type {} is not supported, only null or an empty Sequence",
                   Quoted(type));
    }
    const Json* list = normalizer->Find("normalizers");
    if (list == nullptr || !list->IsArray()) return Wrong("normalizer.normalizers", "an array", list);
    for (const Json& step : list->Items()) DI_RETURN_IF_ERROR(CheckNormalizer(&step));
    return Status();
  }

  Status ReadPreTokenizer(const Json& step, const std::string& where, bool nested) {
    DI_ASSIGN_OR_RETURN(const std::string type, TypeOf(step, where));
    if (byte_level_seen_) {
      return Error(Code::kUnimplemented, "{}: a step after ByteLevel is not supported", where);
    }
    if (type == "Sequence" && !nested) {
      const Json* list = step.Find("pretokenizers");
      if (list == nullptr || !list->IsArray()) return Wrong(where + ".pretokenizers", "an array", list);
      for (size_t i = 0; i < list->Items().size(); ++i) {
        DI_RETURN_IF_ERROR(ReadPreTokenizer(list->Items()[i], fmt::format("{}.pretokenizers[{}]", where, i), true));
      }
      return Status();
    }
    if (type == "Split") return ReadSplit(step, where);
    if (type == "ByteLevel") return ReadByteLevel(step, where);
    return Error(Code::kUnimplemented, "{}: type {} is not supported, only Sequence, Split and ByteLevel", where,
                 Quoted(type));
  }

  Status ReadSplit(const Json& step, const std::string& where) {
    const Json* behavior = step.Find("behavior");
    if (behavior == nullptr || !behavior->IsString()) return Wrong(where + ".behavior", "a string", behavior);
    if (behavior->AsString() != "Isolated") {
      return Error(Code::kUnimplemented, "{}.behavior: {} is not supported, only \"Isolated\"", where,
                   Quoted(behavior->AsString()));
    }
    const Json* pattern = step.Find("pattern");
    const Json* regex = pattern == nullptr ? nullptr : pattern->Find("Regex");
    if (regex == nullptr || !regex->IsString()) return Wrong(where + ".pattern.Regex", "a string", regex);
    return AddPattern(regex->AsString(), where);
  }

  Status ReadByteLevel(const Json& step, const std::string& where) {
    byte_level_seen_ = true;
    DI_ASSIGN_OR_RETURN(const bool prefix_space, Flag(step, where, "add_prefix_space"));
    if (prefix_space) return Error(Code::kUnimplemented, "{}.add_prefix_space: true is not supported", where);
    // The flag's default is true.
    const Json* use_regex = step.Find("use_regex");
    if (use_regex != nullptr && !use_regex->IsBool()) return Wrong(where + ".use_regex", "a boolean", use_regex);
    if (use_regex != nullptr && !use_regex->AsBool()) return Status();
    return AddPattern(kByteLevelPattern, where);
  }

  Status AddPattern(std::string pattern, const std::string& where) {
    if (pattern.size() > kPatternBytesMax || spec_.split_patterns.size() >= kSplitsMax) {
      return Error(Code::kResourceExhausted, "{}: over the limit of {} patterns of {} bytes", where, kSplitsMax,
                   kPatternBytesMax);
    }
    spec_.split_patterns.push_back(std::move(pattern));
    return Status();
  }

  Status CheckDecoder(const Json* decoder) {
    if (decoder == nullptr) return Wrong("decoder", "an object", nullptr);
    DI_ASSIGN_OR_RETURN(const std::string type, TypeOf(*decoder, "decoder"));
    if (type == "ByteLevel") return Status();
    return Error(Code::kUnimplemented, "decoder: type {} is not supported, only ByteLevel", Quoted(type));
  }

  Status ReadModel(const Json& model) {
    DI_ASSIGN_OR_RETURN(const std::string type, TypeOf(model, "model"));
    if (type != "BPE") return Error(Code::kUnimplemented, "model.type: {} is not supported, only BPE", Quoted(type));
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix", "dropout"}) {
      const Json* value = model.Find(key);
      const bool off = AbsentOrNull(value) || (value->IsString() && value->AsString().empty()) ||
                       value->ToDouble() == 0.0;
      if (!off) return Error(Code::kUnimplemented, "model.{}: is set, which is not supported", key);
    }
    DI_ASSIGN_OR_RETURN(const bool byte_fallback, Flag(model, "model", "byte_fallback"));
    if (byte_fallback) return Error(Code::kUnimplemented, "model.byte_fallback: true is not supported");
    DI_ASSIGN_OR_RETURN(spec_.ignore_merges, Flag(model, "model", "ignore_merges"));
    DI_RETURN_IF_ERROR(ReadVocabulary(model.Find("vocab")));
    // With a token for each byte nothing is ever unknown.
    const bool complete = std::ranges::none_of(spec_.byte_ids, [](TokenId id) { return id < 0; });
    if (!AbsentOrNull(model.Find("unk_token")) && !complete) {
      return Error(Code::kUnimplemented, "model.unk_token: is set and some bytes have no token; not supported");
    }
    return ReadMerges(model.Find("merges"));
  }

  // Gives `id` to the token, in both directions.
  Status Define(TokenId id, const std::string& token, const std::string& where) {
    if (token.empty() || token.size() > limits_.token_bytes_max) {
      return Error(Code::kDataLoss, "{}: a token of {} bytes, expected 1..{}", where, token.size(),
                   limits_.token_bytes_max);
    }
    if (static_cast<size_t>(id) >= spec_.spellings.size()) {
      spec_.spellings.resize(id + 1);
      spec_.bytes.resize(id + 1);
    }
    if (!spec_.spellings[id].empty()) {
      return Error(Code::kDataLoss, "{}: id {} of {} is also the id of {}", where, id, Quoted(token),
                   Quoted(spec_.spellings[id]));
    }
    if (!ids_.emplace(token, id).second) {
      return Error(Code::kDataLoss, "{}: {} is there twice", where, Quoted(token));
    }
    spec_.spellings[id] = token;
    // As the published decoder has it: a token that isn't spelled in the byte alphabet stands for itself.
    std::optional<std::string> bytes = ByteLevelBytes(token);
    spec_.bytes[id] = bytes.has_value() ? *std::move(bytes) : token;
    return Status();
  }

  Result<TokenId> ReadId(const Json* value, const std::string& where) {
    const std::optional<int64_t> id = value == nullptr ? std::nullopt : value->ToInt64();
    if (!id.has_value()) return Wrong(where, "an integer id", value);
    constexpr TokenId kIdMax = TokenizerLimits().id_max;
    const TokenId id_max = std::min(limits_.id_max, kIdMax);
    if (*id < 0 || *id > id_max) {
      return Error(Code::kDataLoss, "{}: id {} is outside 0..{}", where, *id, id_max);
    }
    return static_cast<TokenId>(*id);
  }

  Status ReadVocabulary(const Json* vocab) {
    if (vocab == nullptr || !vocab->IsObject()) return Wrong("model.vocab", "an object", vocab);
    if (vocab->Members().empty()) return Error(Code::kDataLoss, "model.vocab: is empty");
    ids_.reserve(vocab->Members().size());
    for (const auto& [token, value] : vocab->Members()) {
      DI_ASSIGN_OR_RETURN(const TokenId id, ReadId(&value, fmt::format("model.vocab[{}]", Quoted(token))));
      DI_RETURN_IF_ERROR(Define(id, token, "model.vocab"));
      spec_.vocabulary.push_back(id);
    }
    std::ranges::sort(spec_.vocabulary);
    spec_.byte_ids.fill(-1);
    for (const TokenId id : spec_.vocabulary) {
      const std::optional<std::string> bytes = ByteLevelBytes(spec_.spellings[id]);
      if (bytes.has_value() && bytes->size() == 1) spec_.byte_ids[static_cast<uint8_t>((*bytes)[0])] = id;
    }
    return Status();
  }

  Status ReadMerges(const Json* merges) {
    if (merges == nullptr || !merges->IsArray()) return Wrong("model.merges", "an array", merges);
    spec_.merges.reserve(merges->Items().size());
    for (size_t i = 0; i < merges->Items().size(); ++i) {
      DI_RETURN_IF_ERROR(ReadMerge(merges->Items()[i], fmt::format("model.merges[{}]", i)));
    }
    return Status();
  }

  Status ReadMerge(const Json& merge, const std::string& where) {
    std::string left, right;
    if (merge.IsString()) {
      const std::string& both = merge.AsString();
      const size_t space = both.find(' ');
      if (space == std::string::npos || both.find(' ', space + 1) != std::string::npos) {
        return Error(Code::kDataLoss, "{}: expected two tokens with one space between them, found {}", where,
                     Quoted(both));
      }
      left = both.substr(0, space);
      right = both.substr(space + 1);
    } else if (merge.IsArray() && merge.Items().size() == 2 && merge.Items()[0].IsString() &&
               merge.Items()[1].IsString()) {
      left = merge.Items()[0].AsString();
      right = merge.Items()[1].AsString();
    } else {
      return Wrong(where, "\"left right\" or [\"left\", \"right\"]", &merge);
    }
    MergeRule rule;
    for (const auto& [token, id] : {std::pair{&left, &rule.left}, {&right, &rule.right}}) {
      const auto it = ids_.find(*token);
      if (it == ids_.end()) {
        return Error(Code::kDataLoss, "{}: {} is not in model.vocab", where, Quoted(*token));
      }
      *id = it->second;
    }
    const auto merged = ids_.find(left + right);
    if (merged == ids_.end()) {
      return Error(Code::kDataLoss, "{}: the merged token {} is not in model.vocab", where, Quoted(left + right));
    }
    rule.merged = merged->second;
    spec_.merges.push_back(rule);
    return Status();
  }

  Status ReadAddedTokens(const Json* list) {
    if (AbsentOrNull(list)) return Status();
    if (!list->IsArray()) return Wrong("added_tokens", "an array", list);
    std::unordered_set<TokenId> seen;
    for (size_t i = 0; i < list->Items().size(); ++i) {
      const std::string where = fmt::format("added_tokens[{}]", i);
      DI_ASSIGN_OR_RETURN(AddedToken token, ReadAddedToken(list->Items()[i], where));
      const auto known = ids_.find(token.content);
      if (known == ids_.end()) {
        DI_RETURN_IF_ERROR(Define(token.id, token.content, where));
        // It was matched as text and comes back as that text, also where it has letters of the byte alphabet. (Published
        // decoders take those for bytes: case C31.)
        spec_.bytes[token.id] = token.content;
      } else if (known->second != token.id) {
        return Error(Code::kDataLoss, "{}: {} has id {} here and {} elsewhere", where, Quoted(token.content),
                     token.id, known->second);
      }
      if (!seen.insert(token.id).second) {
        return Error(Code::kDataLoss, "{}: {} is there twice", where, Quoted(token.content));
      }
      spec_.added_tokens.push_back(std::move(token));
    }
    std::ranges::sort(spec_.added_tokens, {}, &AddedToken::id);
    return Status();
  }

  Result<AddedToken> ReadAddedToken(const Json& entry, const std::string& where) {
    if (!entry.IsObject()) return Wrong(where, "an object", &entry);
    AddedToken token;
    DI_ASSIGN_OR_RETURN(token.id, ReadId(entry.Find("id"), where + ".id"));
    const Json* content = entry.Find("content");
    if (content == nullptr || !content->IsString()) return Wrong(where + ".content", "a string", content);
    token.content = content->AsString();
    for (const char* key : {"single_word", "lstrip", "rstrip"}) {
      DI_ASSIGN_OR_RETURN(const bool set, Flag(entry, where, key));
      if (set) {
        return Error(Code::kUnimplemented, "{}.{}: true is not supported (token {})", where, key,
                     Quoted(token.content));
      }
    }
    DI_ASSIGN_OR_RETURN(token.special, Flag(entry, where, "special"));
    DI_ASSIGN_OR_RETURN(token.normalized, Flag(entry, where, "normalized"));
    return token;
  }

  const TokenizerLimits& limits_;
  TokenizerSpec spec_;
  std::unordered_map<std::string, TokenId> ids_;
  bool byte_level_seen_ = false;
};

}  // namespace

Result<TokenizerSpec> ParseTokenizerJson(std::string_view json, std::string_view name, const TokenizerLimits& limits) {
  constexpr std::string_view kLfsPointer = "version https://git-lfs.github.com/";
  if (json.starts_with(kLfsPointer)) {
    return Error(Code::kDataLoss, "{}: is a Git LFS pointer, not the file itself; fetch it with `git lfs pull`", name);
  }
  JsonLimits json_limits;
  json_limits.size_bytes_max = limits.file_bytes_max;
  json_limits.depth_max = 64;
  Result<Json> root = ParseJson(json, json_limits);
  if (!root.ok()) {
    const Code code = root.status().code() == Code::kResourceExhausted ? Code::kResourceExhausted : Code::kDataLoss;
    return Status(code, root.status().message()).In(name);
  }
  Result<TokenizerSpec> spec = Parser(limits).Parse(*root);
  if (!spec.ok()) return spec.status().In(name);
  return spec;
}

}  // namespace deepinfer
