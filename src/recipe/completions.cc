// SPDX-License-Identifier: Apache-2.0
// Plain completions: the prompt goes to the model as it stands, after the begin-of-sentence token. With a suffix it is
// fill-in-the-middle.
#include <utility>

#include "recipe/lowering.h"

namespace deepinfer::recipe {
namespace {

Status ParsePrompt(const Field& field, Request::RawPrompt* prompt) {
  if (field.IsString()) {
    prompt->text = field.json().AsString();
    return {};
  }
  if (!field.IsArray()) return field.BadKind("a string or an array of token ids");
  if (field.size() == 0) return field.Bad("expected at least one token id");
  for (size_t i = 0; i < field.size(); ++i) {
    DI_ASSIGN_OR_RETURN(const int64_t id, ReadInteger(field.Item(i), 0, INT32_MAX));
    prompt->ids.push_back(static_cast<int32_t>(id));
  }
  return {};
}

// What a request wants of its prompt besides an answer to it. With echo no tokens at all may be asked for.
Status ReadEcho(const Field& root, const RecipeOptions& options, Request* request) {
  DI_ASSIGN_OR_RETURN(const auto echo, ReadOptionalBool(root.Member("echo")));
  request->answer.echo_prompt = echo.value_or(false);
  const Field max_tokens = root.Member("max_tokens");
  if (request->answer.echo_prompt && max_tokens.given() && max_tokens.json().ToInt64() == 0) {
    request->sampling.max_tokens = 0;
  } else {
    DI_RETURN_IF_ERROR(ReadMaxTokens(max_tokens, TooMany::kRefuse, options, request));
  }
  if (!request->answer.echo_prompt || !request->sampling.logprobs) return {};
  if (request->suffix) return root.Member("echo").Bad("cannot be used with both suffix and logprobs");
  request->answer.prompt_logprobs = true;
  return {};
}

// One prompt, or a list of prompts.
Status ParsePrompts(const Field& field, const RecipeOptions& options, std::vector<Request::RawPrompt>* prompts) {
  if (!field.IsArray() || field.size() == 0 || !(field.Item(0).IsString() || field.Item(0).IsArray())) {
    return ParsePrompt(field, &prompts->emplace_back());
  }
  if (field.size() > static_cast<size_t>(options.limits.all_choices_max)) {
    return Error(Code::kResourceExhausted, "{}: {} prompts are over the limit of {}", field.pointer(), field.size(),
                 options.limits.all_choices_max);
  }
  for (size_t i = 0; i < field.size(); ++i) DI_RETURN_IF_ERROR(ParsePrompt(field.Item(i), &prompts->emplace_back()));
  return {};
}

Status ParsePenalty(const Field& field, float* penalty) {
  DI_ASSIGN_OR_RETURN(const auto value, ReadOptionalNumber(field));
  *penalty = static_cast<float>(value.value_or(0.0));
  return *penalty >= -2.0F && *penalty <= 2.0F ? Status() : field.Bad("expected a number from -2 to 2");
}

}  // namespace

Result<Request> ParseCompletions(const Field& root, const RecipeOptions& options) {
  DI_ASSIGN_OR_RETURN(Request request, BeginRequest(root, Protocol::kCompletions, options));
  SamplingOptions& sampling = request.sampling;
  request.conversation.thinking = false;
  DI_RETURN_IF_ERROR(ParsePrompts(root.Member("prompt"), options, &request.raw));
  DI_ASSIGN_OR_RETURN(request.suffix, ReadOptionalString(root.Member("suffix")));
  for (const Request::RawPrompt& prompt : request.raw) {
    if (request.suffix && !prompt.ids.empty()) {
      return root.Member("suffix").Bad("cannot be used with a prompt of token ids");
    }
  }
  DI_RETURN_IF_ERROR(ReadSampling(root, options, &request));
  if (options.profile == Profile::kDefault) DI_RETURN_IF_ERROR(ReadGuidedOutput(root, &request));
  DI_RETURN_IF_ERROR(ReadStop(root.Member("stop"), /*allow_one=*/true, &request));
  DI_RETURN_IF_ERROR(ParsePenalty(root.Member("frequency_penalty"), &sampling.frequency_penalty));
  DI_RETURN_IF_ERROR(ParsePenalty(root.Member("presence_penalty"), &sampling.presence_penalty));
  DI_ASSIGN_OR_RETURN(const auto n, ReadOptionalInteger(root.Member("n"), 1, options.limits.num_choices_max));
  sampling.num_choices = static_cast<int>(n.value_or(1));
  if (request.raw.size() * static_cast<size_t>(sampling.num_choices) > static_cast<size_t>(options.limits.all_choices_max)) {
    return Error(Code::kResourceExhausted, "{}: {} for each of {} prompts are over the limit of {}",
                 root.Member("n").pointer(), sampling.num_choices, request.raw.size(), options.limits.all_choices_max);
  }
  DI_ASSIGN_OR_RETURN(const auto seed, ReadOptionalInteger(root.Member("seed"), 0, INT64_MAX));
  if (seed) sampling.seed = static_cast<uint64_t>(*seed);
  DI_ASSIGN_OR_RETURN(const auto top, ReadOptionalInteger(root.Member("logprobs"), 0, 20));
  sampling.logprobs = top.has_value();
  if (top) sampling.top_logprobs = static_cast<int>(*top);
  DI_RETURN_IF_ERROR(ReadEcho(root, options, &request));
  const Field stream_options = root.Member("stream_options");
  if (stream_options.given()) {
    DI_RETURN_IF_ERROR(ExpectObject(stream_options));
    if (!request.answer.stream) return stream_options.Bad("needs \"stream\": true");
    DI_ASSIGN_OR_RETURN(const auto usage, ReadOptionalBool(stream_options.Member("include_usage")));
    request.answer.include_usage = usage.value_or(false);
  }
  return request;
}

}  // namespace deepinfer::recipe
