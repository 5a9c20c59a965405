// SPDX-License-Identifier: Apache-2.0
#include "null_engine.h"

#include <fmt/format.h>

#include <charconv>
#include <chrono>
#include <stdexcept>

#include "core/json.h"

namespace deepinfer::server {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::string_view kEvent =
    R"(data: {"id":"chatcmpl-0123456789abcdef","object":"chat.completion.chunk","created":1700000000,"model":"null",)"
    R"("choices":[{"index":0,"delta":{"content":" token"},"finish_reason":null}],"at":)";
constexpr std::string_view kDone = "data: [DONE]\n\n";
constexpr std::string_view kShort =
    R"({"id":"chatcmpl-0123456789abcdef","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant",)"
    R"("content":" token"},"finish_reason":"stop"}]})";

int64_t IntegerOf(const Json& body, std::string_view name, int64_t otherwise) {
  const Json* value = body.Find(name);
  return value == nullptr ? otherwise : value->ToInt64().value_or(otherwise);
}

int64_t QueryInteger(const HttpRequest& request, std::string_view name) {
  const std::string text = request.QueryValue(name).value_or("0");
  int64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

}  // namespace

NullEngine::NullEngine(int64_t step_us, prometheus::Registry& registry)
    : step_us_(step_us),
      running_(prometheus::BuildGauge()
                   .Name("deepinfer_requests_running")
                   .Help("Running streams.")
                   .Register(registry)
                   .Add({})),
      thread_([this] { Run(); }) {}

NullEngine::~NullEngine() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wakes_.notify_all();
  thread_.join();
}

void NullEngine::AddRoutes(Router* router) {
  router->Add({.method = "POST",
               .pattern = "/v1/chat/completions",
               .run_on = RunOn::kWorker,
               .handler = [this](const auto& request, const auto& responder) { Answer(*request, responder); }});
  router->Add({.method = "GET", .pattern = "/v1/models", .handler = [](const auto&, const auto& responder) {
                 responder->SendJson(200, R"({"object":"list","data":[{"id":"null","object":"model"}]})");
               }});
  router->Add({.method = "POST", .pattern = "/test/short", .handler = [](const auto&, const auto& responder) {
                 responder->SendJson(200, std::string(kShort));
               }});
  router->Add({.method = "POST",
               .pattern = "/test/echo",
               .run_on = RunOn::kWorker,
               .handler = [](const auto& request, const auto& responder) {
                 responder->Send(200, "application/octet-stream", request->body);
               }});
  router->Add(
      {.method = "GET", .pattern = "/test/throw", .run_on = RunOn::kWorker, .handler = [](const auto&, const auto&) {
         throw std::runtime_error("on purpose");
       }});
  router->Add({.method = "GET", .pattern = "/test/drop", .handler = [](const auto&, const auto& responder) {
                 responder->BeginStream({});
                 responder->Write("data: the rest is lost\n\n");
               }});
  router->Add({.method = "GET",
               .pattern = "/test/wait",
               .run_on = RunOn::kWorker,
               .handler = [](const auto& request, const auto& responder) {
                 std::this_thread::sleep_for(
                     std::chrono::milliseconds(std::min<int64_t>(QueryInteger(*request, "ms"), 10'000)));
                 responder->SendJson(200, "{}");
               }});
  router->Add({.method = "GET",
               .pattern = "/test/bytes",
               .run_on = RunOn::kWorker,
               .handler = [](const auto& request, const auto& responder) {
                 responder->Send(200, "text/plain",
                                 std::string(std::min<int64_t>(QueryInteger(*request, "n"), 1 << 28), 'x'));
               }});
}

void NullEngine::Answer(const HttpRequest& request, std::shared_ptr<Responder> responder) {
  const Result<Json> body = ParseJson(request.body);
  if (!body.ok() || !body->IsObject()) {
    return responder->SendJson(400,
                               R"({"error":{"message":"the body is no JSON object","type":"invalid_request_error"}})");
  }
  const Json* stream = body->Find("stream");
  if (stream == nullptr || !stream->IsBool() || !stream->AsBool()) return responder->SendJson(200, std::string(kShort));
  Stream added{.responder = std::move(responder),
               .tokens_left = IntegerOf(*body, "max_tokens", 16),
               .burst = std::max<int64_t>(1, IntegerOf(*body, "burst", 1))};
  added.responder->OnGone([gone = added.gone] { gone->store(true, std::memory_order_relaxed); });
  added.responder->BeginStream({});
  {
    const std::lock_guard lock(mutex_);
    arrived_.push_back(std::move(added));
  }
  wakes_.notify_one();
}

bool NullEngine::Step(Stream& stream) {
  for (int64_t i = 0; i < stream.burst && stream.tokens_left > 0; ++i, --stream.tokens_left) {
    char text[512];
    const int64_t now = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count();
    const auto end = fmt::format_to_n(text, sizeof(text), "{}{}}}\n\n", kEvent, now).out;
    if (!stream.responder->Write({text, static_cast<size_t>(end - text)})) return false;
  }
  if (stream.tokens_left > 0) return !stream.gone->load(std::memory_order_relaxed);
  stream.responder->Write(kDone);
  stream.responder->End();
  return false;
}

void NullEngine::Run() {
  std::vector<Stream> streams;
  Clock::time_point next = Clock::now();
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      wakes_.wait(lock, [&] { return stop_ || !arrived_.empty() || !streams.empty(); });
      if (stop_) return;
      for (Stream& stream : arrived_) streams.push_back(std::move(stream));
      arrived_.clear();
    }
    std::erase_if(streams, [](Stream& stream) { return !Step(stream); });
    running_.Set(static_cast<double>(streams.size()));
    if (step_us_ == 0) continue;
    next = std::max(next + std::chrono::microseconds(step_us_), Clock::now());
    std::this_thread::sleep_until(next);
  }
}

}  // namespace deepinfer::server
