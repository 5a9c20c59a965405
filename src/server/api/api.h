// SPDX-License-Identifier: Apache-2.0
// The endpoints of three protocols over an engine: Chat Completions, Completions, Responses (with stored ones), Messages,
// models, tokens. Shapes of prompts and answers come from the recipe alone (docs/server.md, "Protocols").
//
//   auto api = Api::Create(*engine, "models/x/tokenizer.json", {.models = {"x"}}, &why);
//   api->AddRoutes(&router);
//
// Thread-safe after AddRoutes. Handlers run on the transport's workers, answers on the pumps. Destroy it when no handler can
// be called any more; answers that run then are dropped, and the engine may outlive it.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "deepinfer/engine.h"
#include "deepinfer/recipe.h"
#include "serving/request_builder.h"
#include "server/api/answer_job.h"
#include "server/http/exchange.h"

namespace deepinfer::server {

struct ApiOptions {
  std::vector<std::string> models;  // names that requests may use, at least one
  bool default_thinking = true;     // where a request says nothing
  int64_t max_tokens_default = 0;   // where a request says nothing; 0: what fits the context
  int64_t max_tokens_max = 0;       // of any request; 0: what fits the context
  int64_t deadline_ms_max = 0;      // longest time for an answer; 0: no limit
  serving::RequestBuilderOptions answers;  // how constrained ones are compiled
  ResponseStoreLimits responses;
  int pumps = 1;                    // threads that write answers
  int encode_threads = 1;           // for encoding one long prompt
  AnswerRecordFn record;            // called at the end of each answer, on a pump's thread
};

class Api {
 public:
  static std::unique_ptr<Api> Create(Engine& engine, const std::string& tokenizer_json, ApiOptions options, std::string* why);

  ~Api();

  void AddRoutes(Router* router);
  // As answers report it.
  const std::string& system_fingerprint() const { return fingerprint_; }
  const ResponseStore& responses() const { return *store_; }

 private:
  using RequestPtr = std::shared_ptr<const HttpRequest>;
  using ResponderPtr = std::shared_ptr<Responder>;

  Api(Engine& engine, std::shared_ptr<const recipe::Recipe> recipe, ApiOptions options);

  void Add(Router* router, const char* method, const char* pattern, void (Api::*handler)(RequestPtr, ResponderPtr), RunOn run_on);

  // answers
  void Chat(RequestPtr request, ResponderPtr responder);
  void Completions(RequestPtr request, ResponderPtr responder);
  void Responses(RequestPtr request, ResponderPtr responder);
  void Messages(RequestPtr request, ResponderPtr responder);
  void Generate(recipe::Protocol protocol, const RequestPtr& request, const ResponderPtr& responder);
  std::shared_ptr<const recipe::PreparedRequest> Prepare(recipe::Protocol protocol, const HttpRequest& request,
                                                         Responder& responder, ConversationItems* earlier) const;
  Result<std::vector<GenerationRequest>> Generations(const HttpRequest& request, const recipe::PreparedRequest& prepared);
  Status CheckStore(const recipe::PreparedRequest& prepared) const;
  int RetryAfterSeconds() const;

  // stored responses
  void GetResponse(RequestPtr request, ResponderPtr responder);
  void GetInputItems(RequestPtr request, ResponderPtr responder);
  void DeleteResponse(RequestPtr request, ResponderPtr responder);
  void CancelResponse(RequestPtr request, ResponderPtr responder);

  // models and tokens
  void ListModels(RequestPtr request, ResponderPtr responder);
  void GetModel(RequestPtr request, ResponderPtr responder);
  void CountTokens(RequestPtr request, ResponderPtr responder);
  void Tokenize(RequestPtr request, ResponderPtr responder);
  void Detokenize(RequestPtr request, ResponderPtr responder);
  std::string ModelObject(const std::string& name) const;

  std::string NewId(std::string_view prefix);

  Engine& engine_;
  const std::shared_ptr<const recipe::Recipe> recipe_;
  const ApiOptions options_;
  serving::RequestBuilder builder_;
  const std::shared_ptr<ResponseStore> store_;
  std::vector<std::shared_ptr<TokenPump>> pumps_;
  std::string fingerprint_;
  int64_t started_at_;
  uint64_t id_base_[2];
  std::atomic<uint64_t> next_ = 0;
};

}  // namespace deepinfer::server
