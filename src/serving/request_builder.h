// SPDX-License-Identifier: Apache-2.0
// From a request that the recipe has understood to requests for the engine: prompt, sampling, length, and the grammar of
// its output. The one place where this is decided, for the server and for offline batches.
//
//   RequestBuilder builder(*engine);
//   Result<std::vector<GenerationRequest>> requests = builder.Build(*prepared);
//
// What it leaves to the caller: seed where the request has none, deadline, priority, cache salt, and stop sequences, which
// act on content alone: the answer knows of them (recipe::AnswerStream::done).
//
// Thread-safe. Build may take up to the time limit where a grammar is compiled: call it on a thread that may wait.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "core/status.h"
#include "deepinfer/engine.h"
#include "deepinfer/grammar.h"
#include "deepinfer/recipe.h"
#include "recipe/schema.h"

namespace deepinfer::serving {

struct RequestBuilderOptions {
  // How all grammars are compiled; `cancel` is left out. In the usual spelling no answer gets lost in blanks.
  grammar::CompileOptions grammar{.spelling = grammar::Spelling::kUsual};
  // What is added to schemas that leave it open. A request may say otherwise.
  recipe::SchemaForm schema;
  size_t grammars_max = 256;        // kept for requests that come again with the same
};

class RequestBuilder {
 public:
  // `engine` must outlive it.
  explicit RequestBuilder(const Engine& engine, const RequestBuilderOptions& options = {});

  // One request for each prompt, in order. `cancel`: set it from another thread to stop a compilation.
  // Errors: kInvalidArgument begins with the JSON pointer of the field, where it is one ("/response_format/json_schema/
  // schema: #/properties/a: ..."); kCancelled.
  Result<std::vector<GenerationRequest>> Build(const recipe::PreparedRequest& prepared,
                                               const std::atomic<bool>* cancel = nullptr);

 private:
  Status AddGrammar(const recipe::PreparedRequest& prepared, const std::atomic<bool>* cancel,
                    std::vector<GenerationRequest>* requests);

  const Engine& engine_;
  const RequestBuilderOptions options_;
  grammar::CompileCache grammars_;
};

// What answers report as system_fingerprint: the model, and the numeric identity of the engine. Where it is the same, a request
// with a seed gives the same tokens.
std::string SystemFingerprint(const Engine& engine);

}  // namespace deepinfer::serving
