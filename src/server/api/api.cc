// SPDX-License-Identifier: Apache-2.0
// Requests that end in an answer of the model.
#include "server/api/api.h"

#include <algorithm>
#include <chrono>
#include <random>
#include <utility>

#include "core/json.h"
#include "recipe/request.h"
#include "server/api/caller.h"

namespace deepinfer::server {
namespace {

constexpr std::string_view kDeadlineHeader = "x-request-timeout-ms";

uint64_t Mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

std::string_view IdPrefix(recipe::Protocol protocol) {
  switch (protocol) {
    case recipe::Protocol::kChat: return "chatcmpl-";
    case recipe::Protocol::kResponses: return "resp_";
    case recipe::Protocol::kMessages: return "msg_";
    case recipe::Protocol::kCompletions: break;
  }
  return "cmpl-";
}

int64_t Smaller(int64_t a, int64_t b) { return a == 0 ? b : b == 0 ? a : std::min(a, b); }

// The client's own deadline; 0: none.
Result<int64_t> AskedDeadline(const HttpRequest& request) {
  const std::string* text = request.Header(kDeadlineHeader);
  if (text == nullptr) return int64_t{0};
  const auto ms = Json(Json::Number{*text}).ToInt64();
  if (!ms || *ms < 1) {
    return Error(Code::kInvalidArgument, "header {}: expected a whole number of milliseconds above 0", kDeadlineHeader);
  }
  return *ms;
}

}  // namespace

std::unique_ptr<Api> Api::Create(Engine& engine, const std::string& tokenizer_json, ApiOptions options, std::string* why) {
  if (options.models.empty()) {
    *why = "the server needs at least one model name";
    return nullptr;
  }
  const recipe::RecipeSettings settings{.models = options.models,
                                        .default_thinking = options.default_thinking,
                                        .default_store = options.responses.count_max > 0,
                                        .threads = options.encode_threads};
  auto recipe = recipe::Recipe::Load(tokenizer_json, settings, why);
  if (recipe == nullptr) return nullptr;
  return std::unique_ptr<Api>(new Api(engine, std::move(recipe), std::move(options)));
}

Api::Api(Engine& engine, std::shared_ptr<const recipe::Recipe> recipe, ApiOptions options)
    : engine_(engine),
      recipe_(std::move(recipe)),
      options_(std::move(options)),
      builder_(engine, options_.answers),
      store_(std::make_shared<ResponseStore>(options_.responses)),
      fingerprint_(serving::SystemFingerprint(engine)),
      started_at_(UnixSeconds()) {
  std::random_device random;
  for (uint64_t& half : id_base_) half = (static_cast<uint64_t>(random()) << 32) | random();
  for (int i = 0; i < std::max(1, options_.pumps); ++i) pumps_.push_back(std::make_shared<TokenPump>());
}

Api::~Api() {
  for (const auto& pump : pumps_) pump->Stop();
}

void Api::Add(Router* router, const char* method, const char* pattern, void (Api::*handler)(RequestPtr, ResponderPtr),
              RunOn run_on) {
  router->Add({.method = method, .pattern = pattern, .run_on = run_on, .handler = [this, handler](RequestPtr q, ResponderPtr a) {
                 (this->*handler)(std::move(q), std::move(a));
               }});
}

void Api::AddRoutes(Router* router) {
  router->SetErrorBody(TransportErrorBody);
  Add(router, "POST", "/v1/chat/completions", &Api::Chat, RunOn::kWorker);
  Add(router, "POST", "/v1/completions", &Api::Completions, RunOn::kWorker);
  Add(router, "POST", "/v1/responses", &Api::Responses, RunOn::kWorker);
  Add(router, "GET", "/v1/responses/{id}", &Api::GetResponse, RunOn::kIo);
  Add(router, "DELETE", "/v1/responses/{id}", &Api::DeleteResponse, RunOn::kIo);
  Add(router, "GET", "/v1/responses/{id}/input_items", &Api::GetInputItems, RunOn::kWorker);
  Add(router, "POST", "/v1/responses/{id}/cancel", &Api::CancelResponse, RunOn::kIo);
  Add(router, "POST", "/v1/messages", &Api::Messages, RunOn::kWorker);
  Add(router, "POST", "/v1/messages/count_tokens", &Api::CountTokens, RunOn::kWorker);
  Add(router, "GET", "/v1/models", &Api::ListModels, RunOn::kIo);
  Add(router, "GET", "/v1/models/{name}", &Api::GetModel, RunOn::kIo);
  Add(router, "POST", "/tokenize", &Api::Tokenize, RunOn::kWorker);
  Add(router, "POST", "/detokenize", &Api::Detokenize, RunOn::kWorker);
}

void Api::Chat(RequestPtr request, ResponderPtr responder) { Generate(recipe::Protocol::kChat, request, responder); }
void Api::Completions(RequestPtr request, ResponderPtr responder) {
  Generate(recipe::Protocol::kCompletions, request, responder);
}
void Api::Responses(RequestPtr request, ResponderPtr responder) { Generate(recipe::Protocol::kResponses, request, responder); }
void Api::Messages(RequestPtr request, ResponderPtr responder) { Generate(recipe::Protocol::kMessages, request, responder); }

std::string Api::NewId(std::string_view prefix) {
  const uint64_t n = next_++;
  return fmt::format("{}{:016x}{:016x}", prefix, Mix(id_base_[0] + n), Mix(id_base_[1] ^ Mix(n)));
}

std::shared_ptr<const recipe::PreparedRequest> Api::Prepare(recipe::Protocol protocol, const HttpRequest& request,
                                                            Responder& responder, ConversationItems* earlier) const {
  recipe::RequestError error;
  const recipe::EarlierItemsFn find = [&](std::string_view id) -> std::optional<std::string> {
    auto items = store_->Items(std::string(id), OwnerOf(request), UnixSeconds());
    if (!items) return std::nullopt;
    *earlier = *std::move(items);
    return JoinItems(*earlier);
  };
  auto prepared = recipe_->Prepare(protocol, request.body, &error, find);
  if (prepared == nullptr) {
    responder.Annotate("error", "invalid_request");
    responder.SendJson(error.http_status, std::move(error.body));
    return nullptr;
  }
  if (!prepared->images().empty()) {
    SendError(request, responder, protocol,
              {.status = 400, .message = "images are not supported by this server: send text alone", .code = "unsupported_image"});
    return nullptr;
  }
  return prepared;
}

Status Api::CheckStore(const recipe::PreparedRequest& prepared) const {
  const auto& echo = prepared.internal().answer.echo;
  if (prepared.store() && options_.responses.count_max == 0) {
    return Error(Code::kUnimplemented, "/store: this server stores no responses");
  }
  if (!echo.background) return {};
  if (prepared.stream()) return Error(Code::kUnimplemented, "/background: a background response cannot be streamed; poll it");
  if (!prepared.store()) return Error(Code::kInvalidArgument, "/background: needs \"store\": true");
  return {};
}

Result<std::vector<GenerationRequest>> Api::Generations(const HttpRequest& request,
                                                        const recipe::PreparedRequest& prepared) {
  const ApiKey anybody;
  const ApiKey& key = request.key != nullptr ? *request.key : anybody;
  DI_ASSIGN_OR_RETURN(const int64_t asked_ms, AskedDeadline(request));
  const auto asked_tokens = prepared.sampling().max_tokens;
  const int64_t tokens_max = Smaller(key.max_tokens_max, options_.max_tokens_max);
  if (asked_tokens && tokens_max > 0 && *asked_tokens > tokens_max) {
    return Error(Code::kInvalidArgument, "max tokens: {} are over the limit of {}", *asked_tokens, tokens_max);
  }
  DI_ASSIGN_OR_RETURN(std::vector<GenerationRequest> requests, builder_.Build(prepared));
  for (GenerationRequest& generation : requests) {
    if (!asked_tokens) generation.max_tokens = Smaller(generation.max_tokens, options_.max_tokens_default);
    generation.max_tokens = Smaller(generation.max_tokens, tokens_max);
    generation.deadline_ms = Smaller(asked_ms, Smaller(key.deadline_ms_max, options_.deadline_ms_max));
    generation.cache_salt = key.cache_salt;
  }
  return requests;
}

// About when a place in the queue may be free: as many seconds as answers wait for each that runs, at least 1.
int Api::RetryAfterSeconds() const {
  const EngineStats stats = engine_.Stats();
  return static_cast<int>(std::clamp<int64_t>(stats.requests_waiting / std::max<int64_t>(1, stats.requests_running), 1, 60));
}

void Api::Generate(recipe::Protocol protocol, const RequestPtr& request, const ResponderPtr& responder) {
  ConversationItems earlier;
  const auto prepared = Prepare(protocol, *request, *responder, &earlier);
  if (prepared == nullptr) return;
  const bool responses = protocol == recipe::Protocol::kResponses;
  if (const Status status = responses ? CheckStore(*prepared) : Status(); !status.ok()) {
    return SendError(*request, *responder, protocol, ErrorOf(status));
  }
  auto generations = Generations(*request, *prepared);
  if (!generations.ok()) return SendError(*request, *responder, protocol, ErrorOf(generations.status()));
  // One seed for all prompts, known before the answer begins; a drawn one is whole in every JSON reader (53 bits).
  const uint64_t seed = prepared->sampling().seed.value_or(Mix(id_base_[0] ^ Mix(next_++)) >> 11);
  int64_t prompt_tokens = 0;
  for (GenerationRequest& generation : *generations) {
    generation.seed = seed;
    prompt_tokens += static_cast<int64_t>(generation.prompt.size());
  }
  const bool store = responses && prepared->store();
  const bool background = responses && prepared->internal().answer.echo.background;
  std::string id = NewId(IdPrefix(protocol));
  const auto job = std::make_shared<AnswerJob>(AnswerJob::Setup{
      .engine = &engine_,
      .pump = pumps_[next_.load() % pumps_.size()],
      .store = store ? store_ : nullptr,
      .request = request,
      .responder = background ? nullptr : responder,
      .protocol = protocol,
      .prepared = prepared,
      .answer = recipe_->Answer(prepared, {.id = id,
                                           .model = prepared->model(),
                                           .system_fingerprint = fingerprint_,
                                           .created = UnixSeconds(),
                                           .clock = UnixSeconds,
                                           .prompt_tokens = prompt_tokens}),
      .id = id,
      .seed = seed,
      .record = options_.record});
  const std::string body = store ? job->InitialBody() : std::string();
  if (store) {
    store_->Begin({.id = id,
                   .owner = OwnerOf(*request),
                   .body = body,
                   .earlier = std::move(earlier),
                   .input_items = prepared->input_items(),
                   .cancel = [weak = std::weak_ptr(job)] {
                     if (const auto live = weak.lock()) live->Cancel();
                   }},
                  UnixSeconds());
  }
  if (const auto error = job->Start(*std::move(generations))) {
    if (store) store_->Delete(id, OwnerOf(*request), UnixSeconds());
    HeaderList headers;
    if (error->status == 429) headers.emplace_back("retry-after", std::to_string(RetryAfterSeconds()));
    SendError(*request, *responder, protocol, *error, std::move(headers));
  } else if (background) {
    responder->SendJson(200, body);
  }
}

}  // namespace deepinfer::server
