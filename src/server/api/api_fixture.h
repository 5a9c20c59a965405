// SPDX-License-Identifier: Apache-2.0
// For tests: an engine that writes what a script says, step by step, and a responder that remembers what it was given.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "core/json.h"
#include "server/api/api.h"

namespace deepinfer::server {

// Each choice of a request gets the tokens of `script`, one a step, and then an end token. Submit and Cancel may come from any
// thread; Step is the engine's thread.
class ScriptEngine final : public Engine {
 public:
  std::function<std::vector<int32_t>(const GenerationRequest& request, int choice)> script;
  int queue_max = 1000;
  int64_t context = 4096;
  int64_t cached_tokens = 0;
  int fail_after = -1;  // tokens, then the request fails; -1: never
  FinishReason fail_reason = FinishReason::kError;

  GenerationId Submit(const GenerationRequest& request, OutputFn consumer, std::string* why, bool* busy = nullptr) override {
    const std::lock_guard lock(mutex_);
    if (busy != nullptr) *busy = static_cast<int>(open_.size()) >= queue_max;
    if (static_cast<int>(open_.size()) >= queue_max) {
      *why = "too many requests wait";
      return 0;
    }
    requests.push_back(request);
    Running& running = open_[++last_];
    running.consumer = std::move(consumer);
    running.request = request;
    running.choices.resize(static_cast<size_t>(request.choices));
    for (int c = 0; c < request.choices; ++c) running.choices[static_cast<size_t>(c)].tokens = script(request, c);
    return last_;
  }
  void Cancel(GenerationId id) override { Cancel(id, -1); }
  void Cancel(GenerationId id, int choice) override {
    const std::lock_guard lock(mutex_);
    const auto it = open_.find(id);
    if (it == open_.end()) return;
    ++cancels;
    for (size_t c = 0; c < it->second.choices.size(); ++c) {
      if (choice < 0 || static_cast<int>(c) == choice) it->second.choices[c].cancelled = true;
    }
  }
  void Wait(GenerationId) override {}

  // One token of each choice. False: nothing runs.
  bool Step() override {
    std::vector<std::pair<OutputFn, Output>> outputs;
    {
      const std::lock_guard lock(mutex_);
      for (auto it = open_.begin(); it != open_.end();) {
        bool any = false;
        for (size_t c = 0; c < it->second.choices.size(); ++c) any = Advance(it->second, static_cast<int>(c), &outputs) || any;
        it = any ? std::next(it) : open_.erase(it);
      }
    }
    for (auto& [consumer, output] : outputs) consumer(output);
    const std::lock_guard lock(mutex_);
    return !open_.empty();
  }
  void RunAll() {
    while (Step()) {
    }
  }
  size_t num_open() const {
    const std::lock_guard lock(mutex_);
    return open_.size();
  }

  EngineStats Stats() const override { return {}; }
  std::vector<int32_t> Tokenize(std::string_view) const override { return {0, 5}; }
  const std::string& model_identity() const override { return identity_; }
  const std::string& numeric_identity() const override { return identity_; }
  int64_t context_max() const override { return context; }
  const std::vector<std::string>& warnings() const override { return warnings_; }
  std::optional<int32_t> FindToken(std::string_view) const override { return std::nullopt; }
  std::shared_ptr<const grammar::Vocabulary> grammar_vocabulary() const override { return nullptr; }

  std::vector<GenerationRequest> requests;  // all that were taken
  int cancels = 0;

 private:
  struct Choice {
    std::vector<int32_t> tokens;
    size_t next = 0;
    bool ended = false;
    bool cancelled = false;
  };
  struct Running {
    GenerationRequest request;
    OutputFn consumer;
    std::vector<Choice> choices;
  };

  // Whether the choice goes on.
  bool Advance(Running& running, int index, std::vector<std::pair<OutputFn, Output>>* outputs) const {
    Choice& choice = running.choices[static_cast<size_t>(index)];
    if (choice.ended) return false;
    Output output;
    output.choice = index;
    output.cached_tokens = cached_tokens;
    const bool failed = fail_after >= 0 && choice.next >= static_cast<size_t>(fail_after);
    const bool full = static_cast<int64_t>(choice.next) >= running.request.max_tokens;
    if (choice.cancelled || failed || full || choice.next >= choice.tokens.size()) {
      choice.ended = output.finished = true;
      output.reason = choice.cancelled ? FinishReason::kCancelled
                      : failed         ? fail_reason
                      : full           ? FinishReason::kLength
                                       : FinishReason::kStop;
      if (failed) output.error = "the device is gone";
    } else {
      output.token = choice.tokens[choice.next++];
      if (running.request.logprobs) {
        output.logprob = -0.5F;
        output.alternatives.assign(static_cast<size_t>(*running.request.logprobs), {.token = output.token, .logprob = -0.5F});
      }
    }
    outputs->emplace_back(running.consumer, output);
    return !choice.ended;
  }

  mutable std::mutex mutex_;
  std::map<GenerationId, Running> open_;
  GenerationId last_ = 0;
  std::string identity_ = "identity";
  std::vector<std::string> warnings_;
};

class FakeResponder final : public Responder {
 public:
  void Send(int status, std::string_view, std::string body, HeaderList headers) override {
    const std::lock_guard lock(mutex_);
    if (ended_) return;
    status_ = status;
    text_ = std::move(body);
    headers_ = std::move(headers);
    ended_ = true;
    wakes_.notify_all();
  }
  void BeginStream(StreamOptions options) override {
    const std::lock_guard lock(mutex_);
    status_ = options.status;
    headers_ = std::move(options.headers);
    heartbeat_ = std::move(options.heartbeat);
    streams_ = true;
  }
  bool Write(std::string_view bytes) override {
    const std::lock_guard lock(mutex_);
    text_ += bytes;
    ++writes_;
    return !gone_;
  }
  void End() override {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    wakes_.notify_all();
  }
  void OnGone(std::function<void()> callback) override {
    const std::lock_guard lock(mutex_);
    on_gone_ = std::move(callback);
  }
  bool gone() const override {
    const std::lock_guard lock(mutex_);
    return gone_;
  }
  void Annotate(std::string_view, std::string_view) override {}
  void Annotate(std::string_view, int64_t) override {}

  void GoAway() {
    std::function<void()> callback;
    {
      const std::lock_guard lock(mutex_);
      gone_ = true;
      callback = on_gone_;
    }
    if (callback) callback();
  }
  // The whole answer, once it is complete.
  std::string Wait() {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(wakes_.wait_for(lock, std::chrono::seconds(20), [&] { return ended_; })) << "no answer; so far: " << text_;
    return text_;
  }
  Json WaitJson() {
    auto json = ParseJson(Wait());
    EXPECT_TRUE(json.ok()) << text_;
    return json.ok() ? *std::move(json) : Json();
  }
  bool ended() const {
    const std::lock_guard lock(mutex_);
    return ended_;
  }
  std::string text() const {
    const std::lock_guard lock(mutex_);
    return text_;
  }
  const std::string& heartbeat() const { return heartbeat_; }
  int status() const { return status_; }
  bool streams() const { return streams_; }
  const std::string* Header(std::string_view name) const {
    for (const auto& [key, value] : headers_) {
      if (key == name) return &value;
    }
    return nullptr;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable wakes_;
  int status_ = 0;
  std::string text_;
  HeaderList headers_;
  std::string heartbeat_;
  bool streams_ = false;
  bool ended_ = false;
  bool gone_ = false;
  int writes_ = 0;
  std::function<void()> on_gone_;
};

// The endpoints over a script engine and the bundled tokenizer, model "m".
class ApiFixture : public testing::Test {
 protected:
  ApiFixture() { Open({.models = {"m", "second"}}); }
  void Open(ApiOptions options) {
    std::string why;
    router_ = Router();
    api_ = Api::Create(engine_, DI_SOURCE_DIR "/models/deepseek-v41-tiny/tokenizer.json", std::move(options), &why);
    ASSERT_NE(api_, nullptr) << why;
    api_->AddRoutes(&router_);
    recipe_ = recipe::Recipe::Load(DI_SOURCE_DIR "/models/deepseek-v41-tiny/tokenizer.json", {}, &why);
    Script("Hello there, you");
  }
  void Script(const std::string& text) {
    engine_.script = [tokens = recipe_->Tokenize(text)](const GenerationRequest&, int) { return tokens; };
  }

  // Starts a request; the engine has not stepped.
  std::shared_ptr<FakeResponder> Begin(const std::string& method, const std::string& path, std::string body = {},
                                       std::shared_ptr<const ApiKey> key = nullptr, HeaderList headers = {}) {
    auto request = std::make_shared<HttpRequest>();
    const std::string query = path.find('?') == std::string::npos ? "" : path.substr(path.find('?') + 1);
    const Router::Match match = router_.Find(method, path.substr(0, path.find('?')));
    auto responder = std::make_shared<FakeResponder>();
    if (match.route == nullptr) {
      responder->SendJson(404, router_.ErrorBody(path, 404, "no such path"));
      return responder;
    }
    request->method = method;
    request->path = path.substr(0, path.find('?'));
    request->query = query;
    request->headers = std::move(headers);
    request->body = std::move(body);
    request->request_id = "req_1";
    request->key = std::move(key);
    request->captures = match.captures;
    request->received_at = std::chrono::steady_clock::now();
    match.route->handler(request, responder);
    return responder;
  }
  std::shared_ptr<FakeResponder> Do(const std::string& method, const std::string& path, std::string body = {},
                                    std::shared_ptr<const ApiKey> key = nullptr, HeaderList headers = {}) {
    auto responder = Begin(method, path, std::move(body), std::move(key), std::move(headers));
    Finish(*responder);
    return responder;
  }
  void Finish(FakeResponder& responder) {
    engine_.RunAll();
    responder.Wait();
  }

  ScriptEngine engine_;
  std::unique_ptr<Api> api_;
  Router router_;
  std::shared_ptr<const recipe::Recipe> recipe_;
};

// The member at a path such as "choices/0/message/content"; null where there is none.
inline Json At(const Json& json, std::string_view path) {
  const Json* at = &json;
  while (!path.empty() && at != nullptr) {
    const std::string_view step = path.substr(0, path.find('/'));
    path.remove_prefix(std::min(path.size(), step.size() + 1));
    if (at->IsArray()) {
      const size_t index = static_cast<size_t>(std::atoi(std::string(step).c_str()));
      at = index < at->Items().size() ? &at->Items()[index] : nullptr;
    } else {
      at = at->Find(step);
    }
  }
  return at == nullptr ? Json() : *at;
}
inline std::string TextAt(const Json& json, std::string_view path) {
  const Json found = At(json, path);
  return found.IsString() ? found.AsString() : WriteJson(found);
}
inline int64_t NumberAt(const Json& json, std::string_view path) { return At(json, path).ToInt64().value_or(-1); }

// The data of all events of a stream; "[DONE]" and comments left out.
inline std::vector<Json> EventsOf(const std::string& stream) {
  std::vector<Json> events;
  for (size_t at = 0; at < stream.size();) {
    const size_t end = std::min(stream.find('\n', at), stream.size());
    const std::string line = stream.substr(at, end - at);
    at = end + 1;
    if (!line.starts_with("data: ") || line == "data: [DONE]") continue;
    auto json = ParseJson(line.substr(6));
    EXPECT_TRUE(json.ok()) << line;
    if (json.ok()) events.push_back(*std::move(json));
  }
  return events;
}

}  // namespace deepinfer::server
