// SPDX-License-Identifier: Apache-2.0
// The settings of `deepinfer serve`: what each is called, means and defaults to. One table serves the command line (a
// flag each), the configuration file (a TOML key each, in the table that the setting's group names) and the log. Flags
// win over the file, the file over the defaults.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/status.h"
#include "deepinfer/engine.h"
#include "server/http/http_config.h"
#include "server/http/json_log.h"
#include "server/http/key_ring.h"

namespace deepinfer::server {

struct ServerConfig {
  std::string model;  // as --model of all commands
  bool offline = false;
  EngineOptions engine{.backend = ""};          // empty: DEEPINFER_ACCELERATOR, else cpu
  std::vector<std::string> served_model_names;  // the first is what answers report; empty: the checkpoint's folder name

  HttpConfig http;
  std::string keys_file;
  bool metrics_public = false;
  double drain_seconds = 30;
  double stuck_seconds = 60;  // requests run and no step ends for so long: /health says 503
  std::string log_file;       // empty: stderr

  // Of the endpoints.
  bool default_thinking = true;
  // Of answers that follow a schema.
  std::string json_blanks = "usual";
  std::string json_key_order = "schema";
  bool json_closed_objects = false;
  int64_t json_max_length_default = 0;
  int64_t json_max_items_default = 0;
  int answer_threads = 1;
  int encode_threads = 1;
  int64_t max_tokens_default = 0;  // where a request says nothing; 0: what fits the context
  int64_t max_tokens_max = 0;      // of any request; 0: what fits the context
  double deadline_seconds_max = 0;
  int64_t stored_responses_max = 10'000;
  int64_t stored_responses_bytes_max = int64_t{256} << 20;
  double stored_responses_hours = 24;
};

struct Setting {
  const char* group;  // table of the file, heading of --help
  const char* name;   // flag without its dashes, key of the file
  const char* help;
  std::variant<bool*, int*, int64_t*, size_t*, double*, std::string*, std::vector<std::string>*> value;
};

// All settings, pointing into `config`.
std::vector<Setting> SettingsOf(ServerConfig* config);

// The value as text: what --help shows and the log tells.
std::string TextOf(const Setting& setting);
// Sets it from a flag's text; a list takes one more element. kInvalidArgument names the setting and what was expected.
Status SetFromText(const Setting& setting, std::string_view text);
// The defaults, with the file at `path` (where not empty) and then `flags` (name, text) put over them.
// Errors name file, line and key.
Result<ServerConfig> LoadConfig(const std::string& path, const std::vector<std::pair<std::string, std::string>>& flags);

// Says once what the server runs with.
LogLine DescribeConfig(ServerConfig config);

// Keys, names and limits of those who may ask: see docs/server.md for the file. Errors never quote a secret.
Result<KeyRing> LoadKeys(const std::string& path);

}  // namespace deepinfer::server
