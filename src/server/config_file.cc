// SPDX-License-Identifier: Apache-2.0
// The two TOML files: settings and keys. The one file that includes toml++.
#include <sys/stat.h>
#include <toml++/toml.h>

#include <set>

#include "core/file.h"
#include "server/config.h"

namespace deepinfer::server {
namespace {

constexpr size_t kFileBytesMax = size_t{1} << 20;
constexpr size_t kKeysMax = 10'000;
constexpr size_t kSecretBytesMin = 16;
constexpr size_t kSecretBytesMax = 512;

Result<toml::table> ParseFile(const std::string& path, std::string_view text) {
  try {
    return toml::parse(text, path);
  } catch (const toml::parse_error& error) {
    const auto at = error.source().begin;
    return Error(Code::kInvalidArgument, "{}:{}:{}: {}", path, at.line, at.column, error.description());
  }
}

std::string At(const std::string& path, const toml::node& node) {
  return fmt::format("{}:{}", path, node.source().begin.line);
}

// A scalar as the text that a flag would have; nothing for tables, arrays and dates.
std::optional<std::string> ScalarText(const toml::node& node) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* number = node.as_integer()) return std::to_string(number->get());
  if (const auto* number = node.as_floating_point()) return fmt::format("{}", number->get());
  if (const auto* flag = node.as_boolean()) return flag->get() ? "true" : "false";
  return std::nullopt;
}

bool WantsString(const Setting& setting) {
  return std::holds_alternative<std::string*>(setting.value) ||
         std::holds_alternative<std::vector<std::string>*>(setting.value);
}

Status SetScalar(const Setting& setting, const toml::node& node) {
  const std::optional<std::string> text = ScalarText(node);
  const bool quoted = node.is_string();
  if (!text || quoted != WantsString(setting)) {
    return Error(Code::kInvalidArgument, "{}: expected {}", setting.name,
                 WantsString(setting) ? "a string in quotes" : "a bare number, true or false");
  }
  return SetFromText(setting, *text);
}

Status SetFromNode(const Setting& setting, const toml::node& node) {
  auto* const* list = std::get_if<std::vector<std::string>*>(&setting.value);
  if (list == nullptr) return SetScalar(setting, node);
  (*list)->clear();
  if (!node.is_array()) return SetScalar(setting, node);
  for (const toml::node& item : *node.as_array()) DI_RETURN_IF_ERROR(SetScalar(setting, item));
  return {};
}

Status ApplyTable(const std::string& path, const std::string& group, const toml::table& table,
                  const std::vector<Setting>& settings) {
  for (const auto& [key, node] : table) {
    const auto found = std::find_if(settings.begin(), settings.end(),
                                    [&](const Setting& s) { return key.str() == s.name && group == s.group; });
    if (found == settings.end()) {
      return Error(Code::kInvalidArgument, "{}: there is no setting \"{}\" in [{}]; deepinfer serve --help lists them",
                   At(path, node), key.str(), group);
    }
    DI_RETURN_IF_ERROR(SetFromNode(*found, node).In(At(path, node)));
  }
  return {};
}

Status ApplyFile(const std::string& path, const std::vector<Setting>& settings) {
  DI_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kFileBytesMax));
  DI_ASSIGN_OR_RETURN(const toml::table root, ParseFile(path, text));
  for (const auto& [key, node] : root) {
    const bool known =
        std::any_of(settings.begin(), settings.end(), [&](const Setting& s) { return key.str() == s.group; });
    if (!known || !node.is_table()) {
      return Error(Code::kInvalidArgument, "{}: expected the tables [engine], [server], [limits] and [answers], found \"{}\"",
                   At(path, node), key.str());
    }
    DI_RETURN_IF_ERROR(ApplyTable(path, std::string(key.str()), *node.as_table(), settings));
  }
  return {};
}

// ----- keys -----

Result<SecretDigest> DigestOf(const toml::table& table) {
  const auto secret = table["secret"].value<std::string>();
  const auto sha256 = table["sha256"].value<std::string>();
  if (secret.has_value() == sha256.has_value())
    return Error(Code::kInvalidArgument, "expected either secret or sha256");
  if (secret) {
    const bool visible = std::all_of(secret->begin(), secret->end(), [](char c) { return c > 0x20 && c < 0x7f; });
    if (secret->size() < kSecretBytesMin || secret->size() > kSecretBytesMax || !visible) {
      return Error(Code::kInvalidArgument, "secret: expected {}..{} visible ASCII characters", kSecretBytesMin,
                   kSecretBytesMax);
    }
    return DigestOfSecret(*secret);
  }
  SecretDigest digest{};
  const auto hex = [](char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; };
  for (size_t i = 0; i < digest.size(); ++i) {
    const int high = sha256->size() == 64 ? hex((*sha256)[2 * i]) : -1;
    const int low = high >= 0 ? hex((*sha256)[2 * i + 1]) : -1;
    if (low < 0) return Error(Code::kInvalidArgument, "sha256: expected 64 lower-case hex digits");
    digest[i] = static_cast<unsigned char>(high * 16 + low);
  }
  return digest;
}

Status CheckKeyFields(const toml::table& table) {
  static const std::set<std::string_view> kKnown = {
      "name",           "secret",         "sha256",          "cache-salt",
      "isolated-cache", "max-tokens-max", "deadline-ms-max", "requests-open-max"};
  for (const auto& [key, node] : table) {
    if (!kKnown.contains(key.str())) return Error(Code::kInvalidArgument, "unknown field \"{}\"", key.str());
  }
  return {};
}

Result<int64_t> Limit(const toml::table& table, const char* name) {
  const toml::node* node = table.get(name);
  if (node == nullptr) return 0;
  const auto value = node->value_exact<int64_t>();
  if (!value || *value < 1 || *value > INT32_MAX)
    return Error(Code::kInvalidArgument, "{}: expected a whole number of at least 1", name);
  return *value;
}

Result<ApiKey> KeyOf(const toml::table& table) {
  ApiKey key;
  key.name = table["name"].value_or(std::string());
  if (key.name.empty() || key.name.size() > 128)
    return Error(Code::kInvalidArgument, "expected a name of 1..128 bytes");
  key.cache_salt = table["cache-salt"].value_or(std::string());
  if (key.cache_salt.empty() && table["isolated-cache"].value_or(false)) key.cache_salt = "key:" + key.name;
  DI_ASSIGN_OR_RETURN(key.max_tokens_max, Limit(table, "max-tokens-max"));
  DI_ASSIGN_OR_RETURN(key.deadline_ms_max, Limit(table, "deadline-ms-max"));
  DI_ASSIGN_OR_RETURN(const int64_t open_max, Limit(table, "requests-open-max"));
  key.requests_open_max = static_cast<int>(open_max);
  return key;
}

}  // namespace

Result<ServerConfig> LoadConfig(const std::string& path,
                                const std::vector<std::pair<std::string, std::string>>& flags) {
  ServerConfig config;
  const std::vector<Setting> settings = SettingsOf(&config);
  if (!path.empty()) DI_RETURN_IF_ERROR(ApplyFile(path, settings));
  std::set<std::string> seen;
  for (const auto& [name, text] : flags) {
    const auto found = std::find_if(settings.begin(), settings.end(), [&](const Setting& s) { return name == s.name; });
    if (found == settings.end()) return Error(Code::kInvalidArgument, "there is no setting \"{}\"", name);
    auto* const* list = std::get_if<std::vector<std::string>*>(&found->value);
    if (list != nullptr && seen.insert(name).second) (*list)->clear();  // flags replace the file's list
    DI_RETURN_IF_ERROR(SetFromText(*found, text).In("--"));
  }
  return config;
}

Result<KeyRing> LoadKeys(const std::string& path) {
  KeyRing ring;
  if (path.empty()) return ring;
  DI_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kFileBytesMax));
  // The parser's own messages quote the text, and with it perhaps a secret: only the place is told.
  toml::table root;
  try {
    root = toml::parse(text, path);
  } catch (const toml::parse_error& error) {
    return Error(Code::kInvalidArgument, "{}:{}: no valid TOML", path, error.source().begin.line);
  }
  const toml::array* keys = root["key"].as_array();
  if (keys == nullptr || keys->empty() || root.size() != 1) {
    return Error(Code::kInvalidArgument, "{}: expected one or more [[key]] tables and nothing else", path);
  }
  if (keys->size() > kKeysMax) return Error(Code::kResourceExhausted, "{}: more than {} keys", path, kKeysMax);
  std::set<std::string> names;
  for (const toml::node& node : *keys) {
    const toml::table* table = node.as_table();
    if (table == nullptr) return Error(Code::kInvalidArgument, "{}: expected a [[key]] table", At(path, node));
    DI_RETURN_IF_ERROR(CheckKeyFields(*table).In(At(path, node)));
    Result<ApiKey> key = KeyOf(*table);
    if (!key.ok()) return key.status().In(At(path, node));
    const Result<SecretDigest> digest = DigestOf(*table);
    if (!digest.ok()) return digest.status().In(At(path, node));
    if (!names.insert(key->name).second)
      return Error(Code::kInvalidArgument, "{}: the name \"{}\" twice", At(path, node), key->name);
    ring.Add(*std::move(key), *digest);
  }
  return ring;
}

}  // namespace deepinfer::server
