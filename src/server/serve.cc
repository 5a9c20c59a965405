// SPDX-License-Identifier: Apache-2.0
#include "server/serve.h"

#include <prometheus/registry.h>

#include <filesystem>

#include "server/api/api.h"
#include "server/engine_metrics.h"
#include "server/pages/pages.h"
#include "server/service.h"

namespace deepinfer::server {
namespace {

// The name that answers report where none is set: the checkpoint's folder, or repository in a hub cache
// (.../models--org--name/snapshots/<commit>).
std::string DefaultModelName(const std::string& directory) {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::canonical(directory, error);
  const std::filesystem::path repository = path.parent_path().parent_path().filename();
  if (const std::string name = repository.string(); name.starts_with("models--")) {
    const size_t dashes = name.rfind("--");
    return name.substr(dashes + 2);
  }
  return path.filename().string();
}

ApiOptions ToApiOptions(const ServerConfig& config, const std::string& model_directory, AnswerRecordFn record) {
  ApiOptions options;
  options.models = config.served_model_names;
  if (options.models.empty()) options.models.push_back(DefaultModelName(model_directory));
  options.default_thinking = config.default_thinking;
  options.max_tokens_default = config.max_tokens_default;
  options.max_tokens_max = config.max_tokens_max;
  options.deadline_ms_max = static_cast<int64_t>(config.deadline_seconds_max * 1000);
  options.responses.count_max = static_cast<size_t>(config.stored_responses_max);
  options.responses.bytes_max = static_cast<size_t>(config.stored_responses_bytes_max);
  options.responses.lifetime_seconds = static_cast<int64_t>(config.stored_responses_hours * 3600);
  options.pumps = config.answer_threads;
  options.encode_threads = config.encode_threads;
  options.record = std::move(record);
  return options;
}

Result<serving::RequestBuilderOptions> AnswerOptionsOf(const ServerConfig& config) {
  serving::RequestBuilderOptions options;
  const auto bad = [](const char* name, const char* expected, const std::string& found) {
    return Error(Code::kInvalidArgument, "{}: expected {}, found \"{}\"", name, expected, found);
  };
  if (config.json_blanks == "any") {
    options.grammar.spelling = grammar::Spelling::kAny;
  } else if (config.json_blanks == "none") {
    options.grammar.whitespace_max = 0;
  } else if (config.json_blanks != "usual") {
    return bad("json-blanks", "usual, any or none", config.json_blanks);
  }
  if (config.json_key_order == "free") {
    options.grammar.key_order = grammar::KeyOrder::kFree;
  } else if (config.json_key_order != "schema") {
    return bad("json-key-order", "schema or free", config.json_key_order);
  }
  options.schema = {.closed = config.json_closed_objects,
                    .max_length = config.json_max_length_default,
                    .max_items = config.json_max_items_default};
  return options;
}

Status CheckRanges(const ServerConfig& c) {
  const auto check = [](const char* name, double value, double low, double high) {
    if (value >= low && value <= high) return Status();
    return Error(Code::kInvalidArgument, "{}: expected {}..{}, found {}", name, low, high, value);
  };
  DI_RETURN_IF_ERROR(check("json-max-length-default", static_cast<double>(c.json_max_length_default), 0, INT32_MAX));
  DI_RETURN_IF_ERROR(check("json-max-items-default", static_cast<double>(c.json_max_items_default), 0, INT32_MAX));
  DI_RETURN_IF_ERROR(check("drain-seconds", c.drain_seconds, 0, 1e6));
  DI_RETURN_IF_ERROR(check("stuck-seconds", c.stuck_seconds, 1, 1e6));
  DI_RETURN_IF_ERROR(check("answer-threads", c.answer_threads, 1, 256));
  DI_RETURN_IF_ERROR(check("encode-threads", c.encode_threads, 1, 256));
  DI_RETURN_IF_ERROR(check("max-tokens-default", static_cast<double>(c.max_tokens_default), 0, 1e9));
  DI_RETURN_IF_ERROR(check("max-tokens-max", static_cast<double>(c.max_tokens_max), 0, 1e9));
  DI_RETURN_IF_ERROR(check("deadline-seconds-max", c.deadline_seconds_max, 0, 1e6));
  DI_RETURN_IF_ERROR(check("stored-responses-max", static_cast<double>(c.stored_responses_max), 0, 1e9));
  DI_RETURN_IF_ERROR(check("stored-responses-bytes-max", static_cast<double>(c.stored_responses_bytes_max), 0, 1e15));
  return check("stored-responses-hours", c.stored_responses_hours, 0, 1e6);
}

}  // namespace

Result<int> Serve(ServerConfig config, const std::string& model_directory) {
  PrepareSignals();
  DI_RETURN_IF_ERROR(CheckRanges(config));
  DI_ASSIGN_OR_RETURN(const serving::RequestBuilderOptions answer_options, AnswerOptionsOf(config));
  DI_ASSIGN_OR_RETURN(std::shared_ptr<JsonLog> log, JsonLog::Open(config.log_file));
  config.engine.model_directory = model_directory;
  config.engine.own_thread = true;
  log->Write(DescribeConfig(config));

  prometheus::Registry registry;
  AnswerMetrics answers(registry);
  std::string why;
  const std::unique_ptr<Engine> engine = Engine::Open(config.engine, &why);
  if (engine == nullptr) return Error(Code::kFailedPrecondition, "{}", why);
  for (const std::string& warning : engine->warnings()) {
    log->Write(std::move(LogLine("model_warning", "warning").Add("message", warning)));
  }
  EngineWatch watch(*engine, std::chrono::duration<double>(config.stuck_seconds));
  ApiOptions api_options = ToApiOptions(config, model_directory, [&](const AnswerRecord& record) { answers.Record(record); });
  api_options.answers = answer_options;
  const std::unique_ptr<Api> api = Api::Create(*engine, model_directory + "/tokenizer.json", std::move(api_options), &why);
  if (api == nullptr) return Error(Code::kFailedPrecondition, "{}", why);
  if (const std::string plan = engine->memory_plan(); !plan.empty()) {
    log->Write(std::move(LogLine("memory").Add("plan", plan)));
  }
  log->Write(std::move(LogLine("model")
                           .Add("directory", model_directory)
                           .Add("model_identity", engine->model_identity())
                           .Add("numeric_identity", engine->numeric_identity())
                           .Add("system_fingerprint", api->system_fingerprint())
                           .Add("context_max", engine->context_max())
                           .Add("memory_plan", engine->memory_plan())));

  Service service;
  service.add_routes = [&](Router* router) {
    api->AddRoutes(router);
    AddPageRoutes(router);
  };
  service.health = [&] { return watch.Check(); };
  service.metrics.push_back(std::make_shared<EngineMetrics>(*engine));
  return RunService(config, registry, std::move(log), std::move(service));
}

}  // namespace deepinfer::server
