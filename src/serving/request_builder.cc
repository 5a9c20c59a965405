// SPDX-License-Identifier: Apache-2.0
#include "serving/request_builder.h"

#include <algorithm>

#include "recipe/constraint/output_grammar.h"
#include "recipe/request.h"
#include "serving/compile_aside.h"

namespace deepinfer::serving {
namespace {

Result<GenerationRequest> WithPrompt(const recipe::PreparedRequest& prepared, const std::vector<int32_t>& prompt,
                                     int64_t context_max) {
  const recipe::SamplingOptions& from = prepared.internal().sampling;
  const auto prompt_tokens = static_cast<int64_t>(prompt.size());
  const auto max_tokens = prepared.ResolveMaxTokens(prompt_tokens, context_max);
  if (!max_tokens || prompt_tokens >= context_max) {
    return Error(Code::kInvalidArgument, "the prompt of {} tokens, with {} to generate, does not fit the context of {} tokens",
                 prompt_tokens, from.max_tokens.value_or(1), context_max);
  }
  GenerationRequest to;
  to.prompt = prompt;
  to.max_tokens = std::max<int64_t>(1, *max_tokens);  // with none asked for, the answer leaves it out
  to.min_tokens = from.min_tokens.value_or(0);
  to.choices = from.num_choices;
  if (from.logprobs) to.logprobs = from.top_logprobs.value_or(0);
  if (prepared.prompt_logprobs()) to.prompt_logprobs = to.logprobs;
  to.temperature = from.temperature;
  to.top_k = from.top_k.value_or(0);
  to.top_p = from.top_p;
  to.min_p = from.min_p.value_or(0);
  to.presence_penalty = from.presence_penalty;
  to.frequency_penalty = from.frequency_penalty;
  to.logit_bias = from.logit_bias;
  to.seed = from.seed;
  return to;
}

}  // namespace

RequestBuilder::RequestBuilder(const Engine& engine, const RequestBuilderOptions& options)
    : engine_(engine), options_(options), grammars_(options.grammars_max) {}

Result<std::vector<GenerationRequest>> RequestBuilder::Build(const recipe::PreparedRequest& prepared,
                                                             const std::atomic<bool>* cancel) {
  std::vector<GenerationRequest> requests;
  for (const std::vector<int32_t>& prompt : prepared.prompts()) {
    DI_ASSIGN_OR_RETURN(GenerationRequest request, WithPrompt(prepared, prompt, engine_.context_max()));
    requests.push_back(std::move(request));
  }
  DI_RETURN_IF_ERROR(AddGrammar(prepared, cancel, &requests));
  return requests;
}

Status RequestBuilder::AddGrammar(const recipe::PreparedRequest& prepared, const std::atomic<bool>* cancel,
                                  std::vector<GenerationRequest>* requests) {
  const auto lookup = [this](std::string_view token) { return engine_.FindToken(token); };
  grammar::CompileOptions options = options_.grammar;
  const recipe::OutputDefaults defaults{.compact = options.whitespace_max == 0, .schema = options_.schema};
  DI_ASSIGN_OR_RETURN(const std::optional<recipe::OutputGrammar> output,
                      recipe::MakeOutputGrammar(prepared.internal(), lookup, defaults));
  if (!output) return {};
  if (output->compact != defaults.compact) options.whitespace_max = output->compact ? 0 : grammar::CompileOptions{}.whitespace_max;
  options.cancel = cancel;
  const Result<grammar::CompiledGrammar> compiled = CompileAside([&](const grammar::CompileOptions& limited) {
    return recipe::CompileOutputGrammar(*output, &grammars_, engine_.grammar_vocabulary(), limited);
  }, options);
  if (compiled.status().code() == Code::kResourceExhausted) return Error(Code::kInvalidArgument, "{}", compiled.status().message());
  DI_RETURN_IF_ERROR(compiled.status());
  const auto shared = std::make_shared<const grammar::CompiledGrammar>(*compiled);
  // Text behind a control token is encoded by itself, in the prompt as here.
  const size_t read = output->text_in_prompt.empty()
                          ? 0
                          : engine_.Tokenize(output->text_in_prompt).size() - engine_.Tokenize("").size();
  for (GenerationRequest& request : *requests) {
    request.grammar = shared;
    request.grammar_after = output->begins_after;
    request.grammar_prompt_tokens = static_cast<int64_t>(read);
  }
  return {};
}

std::string SystemFingerprint(const Engine& engine) {
  return engine.model_identity().substr(0, 16) + " " + engine.numeric_identity();
}

}  // namespace deepinfer::serving
