// SPDX-License-Identifier: Apache-2.0
#include "server/config.h"

#include <charconv>

#include "core/json.h"

namespace deepinfer::server {
namespace {

template <class... Ts>
struct Overloaded : Ts... {
  using Ts::operator()...;
};
template <class... Ts>
Overloaded(Ts...) -> Overloaded<Ts...>;

void AddServerSettings(ServerConfig* c, std::vector<Setting>* s) {
  const char* const g = "server";
  s->push_back({g, "host", "address to listen at; 0.0.0.0 or :: for all (use keys and TLS then)", &c->http.host});
  s->push_back({g, "port", "port to listen at; 0 picks a free one and prints it", &c->http.port});
  s->push_back(
      {g, "served-model-name",
       "name that requests use and answers report; more than one may be given (default: the checkpoint's folder)",
       &c->served_model_names});
  s->push_back({g, "keys-file", "TOML file of API keys (docs/server.md); without it everybody may ask", &c->keys_file});
  s->push_back({g, "metrics-public", "let /metrics be read without a key", &c->metrics_public});
  s->push_back({g, "tls-certificate-file", "PEM certificate chain; together with --tls-key-file: HTTPS",
                &c->http.tls_certificate_file});
  s->push_back({g, "tls-key-file", "PEM private key of the certificate", &c->http.tls_key_file});
  s->push_back({g, "cors-origin", "browser origin that may read answers, or *; more than one may be given",
                &c->http.cors_origins});
  s->push_back({g, "log-file", "append the log (JSON lines) to this file (default: stderr)", &c->log_file});
  s->push_back({g, "log-requests", "a log line for each request", &c->http.log_requests});
  s->push_back({g, "io-threads",
                "threads that move bytes; one carries about 40,000 requests or 100,000 tokens a second",
                &c->http.io_threads});
  s->push_back({g, "worker-threads", "threads that parse requests and encode prompts", &c->http.worker_threads});
  s->push_back({g, "answer-threads", "threads that turn tokens into answers", &c->answer_threads});
  s->push_back({g, "encode-threads", "threads that encode one long prompt", &c->encode_threads});
  s->push_back({g, "drain-seconds", "after SIGTERM: how long running requests may take to end", &c->drain_seconds});
  s->push_back(
      {g, "stuck-seconds", "/health says 503 when requests run and no step ends for so long", &c->stuck_seconds});
}

void AddLimitSettings(ServerConfig* c, std::vector<Setting>* s) {
  const char* const g = "limits";
  s->push_back({g, "connections-max", "open connections; over it new ones get 503", &c->http.connections_max});
  s->push_back({g, "header-bytes-max", "request line and header fields; over it 431", &c->http.header_bytes_max});
  s->push_back({g, "body-bytes-max", "one request body; over it 413", &c->http.body_bytes_max});
  s->push_back({g, "body-memory-bytes-max", "bodies of all requests that are not answered yet; over it 503",
                &c->http.body_memory_bytes_max});
  s->push_back({g, "worker-queue-max", "requests that wait for a worker; over it 503", &c->http.worker_queue_max});
  s->push_back({g, "stream-buffer-bytes-max",
                "unread bytes of a stream, beyond the kernel's buffers; over it the client is cut off",
                &c->http.stream_buffer_bytes_max});
  s->push_back({g, "header-seconds", "from a request's first byte to its last header line; over it 408",
                &c->http.header_seconds});
  s->push_back({g, "body-seconds", "from there to the end of the body; over it 408", &c->http.body_seconds});
  s->push_back({g, "idle-seconds", "a connection without a request is closed after so long", &c->http.idle_seconds});
  s->push_back(
      {g, "write-stall-seconds", "a client that takes nothing for so long is cut off", &c->http.write_stall_seconds});
  s->push_back({g, "heartbeat-seconds", "a silent stream sends a comment (Messages: a ping) after so long",
                &c->http.heartbeat_seconds});
  s->push_back({g, "max-tokens-default", "tokens of an answer where the request says nothing; 0: what fits the context",
                &c->max_tokens_default});
  s->push_back({g, "max-tokens-max", "most tokens of any answer; 0: what fits the context", &c->max_tokens_max});
  s->push_back({g, "deadline-seconds-max", "longest time for an answer; 0: none", &c->deadline_seconds_max});
  s->push_back(
      {g, "stored-responses-max", "responses that are kept for later requests; 0: none are", &c->stored_responses_max});
  s->push_back({g, "stored-responses-bytes-max", "memory for them", &c->stored_responses_bytes_max});
  s->push_back({g, "stored-responses-hours", "how long they are kept", &c->stored_responses_hours});
}

void AddEngineSettings(ServerConfig* c, std::vector<Setting>* s) {
  const char* const g = "engine";
  EngineOptions& e = c->engine;
  s->push_back({g, "model", "a checkpoint directory, or org/name[@revision] (default: the bundled model)", &c->model});
  s->push_back({g, "offline", "never download", &c->offline});
  s->push_back({g, "backend", "cpu, cuda or reference (default: DEEPINFER_ACCELERATOR, else cpu)", &e.backend});
  s->push_back(
      {g, "variant", "kernel variant of the cpu backend: avx512, avx2, portable (default: the best)", &e.variant});
  s->push_back({g, "activations", "rounding of matrix inputs: fp32, bf16 or fp8", &e.activations});
  s->push_back({g, "threads", "threads of the cpu backend; 0: every core", &e.num_threads});
  s->push_back({g, "engram-tables", "of the cuda backend: on the host, pinned, or on the device", &e.engram_tables});
  s->push_back(
      {g, "ctx", "most tokens of a request, prompt and answer; 0: what the model was made for", &e.context_max});
  s->push_back({g, "kv-memory-bytes", "memory for the KV cache", &e.kv_memory_bytes});
  s->push_back({g, "snapshot-share", "share of it for windows kept at block ends", &e.snapshot_share});
  s->push_back({g, "snapshot-every-blocks", "keep windows every so many blocks; 0: at ends of prompts and answers",
                &e.snapshot_every_blocks});
  s->push_back({g, "requests-running-max", "requests in a batch", &e.requests_running_max});
  s->push_back({g, "requests-waiting-max", "requests that wait for a place; over it 429", &e.requests_waiting_max});
  s->push_back({g, "step-rows-max", "rows of a forward pass", &e.step_rows_max});
  s->push_back({g, "prefill-rows-max", "of those for prompts; 0: as many as decodes leave", &e.prefill_rows_max});
  s->push_back(
      {g, "drafts", "speculative decoding, which changes no answer: auto, on, off or a number of drafts", &e.drafts});
  s->push_back({g, "verification", "which drafts stand: coupled, which changes no answer, or by chance: rejection, block",
                &e.verification});
  s->push_back({g, "default-thinking", "think first where a request says nothing", &c->default_thinking});
}

void AddAnswerSettings(ServerConfig* c, std::vector<Setting>* s) {
  const char* const g = "answers";
  s->push_back({g, "json-blanks",
                "of JSON that follows a schema: usual (as people and programs write it), any (all that JSON allows, 32 at a "
                "place), none (compact)",
                &c->json_blanks});
  s->push_back({g, "json-key-order", "of its members: schema (the order of their declaration) or free", &c->json_key_order});
  s->push_back({g, "json-closed-objects",
                "take a schema that declares members and says nothing of others to allow no others", &c->json_closed_objects});
  s->push_back({g, "json-max-length-default", "maxLength of strings whose schema has none; 0: no limit", &c->json_max_length_default});
  s->push_back({g, "json-max-items-default", "maxItems of arrays whose schema has none; 0: no limit", &c->json_max_items_default});
}

template <typename T>
Status ParseNumber(const char* name, std::string_view text, const char* kind, T* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  if (error == std::errc() && end == text.data() + text.size()) return {};
  return Error(Code::kInvalidArgument, "{}: expected {}, found \"{}\"", name, kind, text);
}

std::string Quoted(std::string_view text) {
  std::string out;
  AppendJsonString(text, /*ascii_only=*/false, &out);
  return out;
}

// As JSON.
std::string JsonOf(const Setting& setting) {
  return std::visit(Overloaded{
                        [](bool* v) { return std::string(*v ? "true" : "false"); },
                        [](std::string* v) { return Quoted(*v); },
                        [](std::vector<std::string>* v) {
                          std::string out = "[";
                          for (const std::string& item : *v) out += (out.size() > 1 ? "," : "") + Quoted(item);
                          return out + "]";
                        },
                        [](double* v) { return fmt::format("{:g}", *v); },
                        [](auto* v) { return std::to_string(*v); },
                    },
                    setting.value);
}

}  // namespace

std::vector<Setting> SettingsOf(ServerConfig* config) {
  std::vector<Setting> settings;
  AddEngineSettings(config, &settings);
  AddServerSettings(config, &settings);
  AddLimitSettings(config, &settings);
  AddAnswerSettings(config, &settings);
  return settings;
}

std::string TextOf(const Setting& setting) {
  if (const auto* text = std::get_if<std::string*>(&setting.value)) return **text;
  if (const auto* list = std::get_if<std::vector<std::string>*>(&setting.value); list != nullptr && (*list)->empty())
    return "";
  return JsonOf(setting);
}

Status SetFromText(const Setting& setting, std::string_view text) {
  const char* const name = setting.name;
  return std::visit(Overloaded{
                        [&](bool* v) {
                          if (text != "true" && text != "false") {
                            return Error(Code::kInvalidArgument, "{}: expected true or false, found \"{}\"", name,
                                         text);
                          }
                          *v = text == "true";
                          return Status();
                        },
                        [&](std::string* v) {
                          *v = text;
                          return Status();
                        },
                        [&](std::vector<std::string>* v) {
                          v->emplace_back(text);
                          return Status();
                        },
                        [&](double* v) { return ParseNumber(name, text, "a number", v); },
                        [&](auto* v) { return ParseNumber(name, text, "a whole number", v); },
                    },
                    setting.value);
}

LogLine DescribeConfig(ServerConfig config) {
  LogLine line("configuration");
  for (const Setting& setting : SettingsOf(&config)) line.AddRaw(setting.name, JsonOf(setting));
  return line;
}

}  // namespace deepinfer::server
