// SPDX-License-Identifier: Apache-2.0
// The public interface over the modules: no rules of its own.
#include <utility>

#include "deepinfer/recipe.h"
#include "recipe/encode.h"
#include "recipe/output/answer_error.h"
#include "recipe/output/output_parser.h"
#include "recipe/output/output_vocabulary.h"
#include "recipe/output/response_writer.h"
#include "recipe/output/sse.h"
#include "recipe/parse_request.h"

namespace deepinfer::recipe {
namespace {

class PreparedRequestImpl : public PreparedRequest {
 public:
  PreparedRequestImpl(Request request, const Prompt& prompt, std::vector<TokenId> ids, std::vector<PromptImage> images)
      : request_(std::move(request)),
        ids_(std::move(ids)),
        text_(prompt.Text()),
        ranges_(prompt.ControlRanges()),
        images_(std::move(images)) {}

  const std::vector<int32_t>& ids() const override { return ids_; }
  const std::string& text() const override { return text_; }
  const std::vector<std::pair<size_t, size_t>>& control_ranges() const override { return ranges_; }
  const std::vector<PromptImage>& images() const override { return images_; }
  const std::vector<std::string>& stop_sequences() const override { return request_.parsing.stop_sequences; }
  const std::string& model() const override { return request_.answer.model; }
  bool stream() const override { return request_.answer.stream; }
  const Request& internal() const override { return request_; }

  Sampling sampling() const override {
    const SamplingOptions& from = request_.sampling;
    return {.max_tokens = from.max_tokens,
            .temperature = from.temperature,
            .top_p = from.top_p,
            .frequency_penalty = from.frequency_penalty,
            .presence_penalty = from.presence_penalty,
            .num_choices = from.num_choices,
            .seed = from.seed,
            .top_logprobs = from.top_logprobs,
            .logprobs = from.logprobs};
  }

  std::string constraint_kind() const override {
    if (!request_.sampling.constraint) return "";
    switch (request_.sampling.constraint->kind) {
      case OutputConstraint::Kind::kJson:
        return "json";
      case OutputConstraint::Kind::kRegex:
        return "regex";
      case OutputConstraint::Kind::kToolCall:
        return "tool_call";
      case OutputConstraint::Kind::kToolCallRequired:
        return "tool_call_required";
    }
    return "";
  }
  std::string constraint() const override {
    return request_.sampling.constraint ? request_.sampling.constraint->schema : "";
  }

  std::optional<int64_t> ResolveMaxTokens(int64_t prompt_tokens, int64_t context_tokens) const override {
    const auto tokens = recipe::ResolveMaxTokens(request_, prompt_tokens, context_tokens);
    return tokens.ok() ? std::optional(*tokens) : std::nullopt;
  }

 private:
  Request request_;
  std::vector<int32_t> ids_;
  std::string text_;
  std::vector<std::pair<size_t, size_t>> ranges_;
  std::vector<PromptImage> images_;
};

class AnswerStreamImpl : public AnswerStream {
 public:
  AnswerStreamImpl(std::shared_ptr<const PreparedRequest> request, const AnswerInfo& info,
                   std::shared_ptr<const OutputVocabulary> vocabulary)
      : request_(std::move(request)), vocabulary_(std::move(vocabulary)) {
    const Request& from = request_->internal();
    AnswerContext context;
    context.id = info.id;
    context.model = info.model;
    context.system_fingerprint = info.system_fingerprint;
    context.created = info.created;
    context.call_id_seed = std::hash<std::string>()(info.id);
    context.prompt_tokens = info.prompt_tokens;
    context.cached_tokens = info.cached_tokens;
    context.num_choices = from.sampling.num_choices;
    context.vocabulary = vocabulary_.get();
    if (from.answer.echo_prompt && from.raw) context.echoed_prompt = from.raw->text;
    writer_ = ResponseWriter::Create(std::move(context), from.answer, from.parsing, from.profile);
    parsers_.resize(static_cast<size_t>(from.sampling.num_choices));
  }

  bool PushTokens(int choice, std::span<const int32_t> ids, std::string* sse) override {
    return Run(choice, sse, [&](OutputParser& parser) { return parser.PushTokens(ids, {}, &events_); });
  }
  bool PushText(int choice, std::string_view text, int64_t token_count, std::string* sse) override {
    return Run(choice, sse, [&](OutputParser& parser) { return parser.PushText(text, token_count, &events_); });
  }
  bool Finish(int choice, FinishKind reason, std::string* sse) override {
    const BackendFinish finish = reason == FinishKind::kStop     ? BackendFinish::kStop
                                 : reason == FinishKind::kLength ? BackendFinish::kLength
                                                                 : BackendFinish::kContentFilter;
    if (!Run(choice, sse, [&](OutputParser& parser) { return parser.Finish(finish, &events_); })) return false;
    std::vector<SseEvent> out;
    writer_->EndChoice(choice, parsers_[static_cast<size_t>(choice)]->usage(), &out);
    Append(out, sse);
    return true;
  }
  bool done(int choice) const override {
    const auto& parser = parsers_[static_cast<size_t>(choice)];
    return failed_ || (parser != nullptr && parser->done());
  }
  std::string Body() const override { return writer_->Body(); }

 private:
  template <typename Push>
  bool Run(int choice, std::string* sse, Push push) {
    std::vector<SseEvent> out;
    const Status status = TryRun(choice, push, &out);
    if (!status.ok() && !failed_) {
      failed_ = true;
      writer_->Fail(ErrorFromStatus(status), &out);
    }
    Append(out, sse);
    return status.ok();
  }

  template <typename Push>
  Status TryRun(int choice, Push push, std::vector<SseEvent>* out) {
    if (failed_) return Error(Code::kFailedPrecondition, "the answer has ended with an error");
    if (!begun_) writer_->Begin(out);
    begun_ = true;
    auto& parser = parsers_[static_cast<size_t>(choice)];
    if (parser == nullptr) {
      const Request& request = request_->internal();
      DI_ASSIGN_OR_RETURN(parser, OutputParser::Create(request.parsing, request.profile, vocabulary_.get()));
    }
    events_.Clear();
    DI_RETURN_IF_ERROR(push(*parser));
    writer_->Add(choice, events_, out);
    return {};
  }

  static void Append(const std::vector<SseEvent>& events, std::string* sse) {
    if (sse == nullptr) return;
    for (const SseEvent& event : events) AppendSse(event, sse);
  }

  std::shared_ptr<const PreparedRequest> request_;
  std::shared_ptr<const OutputVocabulary> vocabulary_;
  std::unique_ptr<ResponseWriter> writer_;
  std::vector<std::unique_ptr<OutputParser>> parsers_;  // one for each choice
  OutputEvents events_;
  bool begun_ = false;
  bool failed_ = false;
};

class RecipeImpl : public Recipe {
 public:
  RecipeImpl(RecipeOptions options, std::shared_ptr<const PromptEncoder> encoder,
             std::shared_ptr<const OutputVocabulary> vocabulary)
      : options_(std::move(options)), encoder_(std::move(encoder)), vocabulary_(std::move(vocabulary)) {}

  std::shared_ptr<const PreparedRequest> Prepare(Protocol protocol, std::string_view body,
                                                 RequestError* error) const override {
    auto prepared = TryPrepare(protocol, body);
    if (prepared.ok()) return *prepared;
    const AnswerError answer = ErrorFromStatus(prepared.status());
    error->message = prepared.status().message();
    error->field = error->message.starts_with('/') ? error->message.substr(0, error->message.find(':')) : "";
    const Code code = prepared.status().code();
    error->http_status = code == Code::kInternal ? 500 : code == Code::kNotFound ? 404 : 400;
    error->body = ErrorBody(protocol, options_.profile, answer);
    return nullptr;
  }

  std::unique_ptr<AnswerStream> Answer(std::shared_ptr<const PreparedRequest> request,
                                       const AnswerInfo& info) const override {
    return std::make_unique<AnswerStreamImpl>(std::move(request), info, vocabulary_);
  }

 private:
  Result<std::shared_ptr<const PreparedRequest>> TryPrepare(Protocol protocol, std::string_view body) const {
    DI_ASSIGN_OR_RETURN(Request request, ParseRequest(protocol, body, options_));
    const Prompt prompt = RenderRequest(request);
    DI_ASSIGN_OR_RETURN(std::vector<TokenId> ids, EncodeRequest(request, *encoder_));
    std::vector<PromptImage> images;
    const auto image_id = encoder_->Id(Control::kImage);
    for (size_t i = 0; i < ids.size() && images.size() < prompt.images().size(); ++i) {
      if (ids[i] == image_id) images.push_back({i, prompt.images()[images.size()].source});
    }
    return std::shared_ptr<const PreparedRequest>(
        std::make_shared<PreparedRequestImpl>(std::move(request), prompt, std::move(ids), std::move(images)));
  }

  RecipeOptions options_;
  std::shared_ptr<const PromptEncoder> encoder_;
  std::shared_ptr<const OutputVocabulary> vocabulary_;
};

Result<std::shared_ptr<const Recipe>> TryLoad(const std::string& path, const RecipeSettings& settings) {
  RecipeOptions options;
  options.profile = settings.profile;
  options.default_thinking = settings.default_thinking;
  options.limits.body_bytes_max = settings.body_bytes_max;
  options.limits.messages_max = settings.messages_max;
  options.limits.tools_max = settings.tools_max;
  options.limits.schema_bytes_max = settings.schema_bytes_max;
  options.models.clear();
  for (const std::string& model : settings.models) options.models.emplace_back(model, ModelVersion::kV41);
  if (settings.models.empty()) options.other_models = ModelVersion::kV41;
  DI_ASSIGN_OR_RETURN(auto tokenizer, Tokenizer::Load(path));
  DI_ASSIGN_OR_RETURN(auto vocabulary, OutputVocabulary::Create(*tokenizer));
  DI_ASSIGN_OR_RETURN(auto encoder, PromptEncoder::Make(tokenizer, {.cache_bytes = settings.cache_bytes,
                                                                    .threads = settings.threads}));
  return std::shared_ptr<const Recipe>(
      std::make_shared<RecipeImpl>(std::move(options), std::move(encoder),
                                   std::make_shared<const OutputVocabulary>(std::move(vocabulary))));
}

}  // namespace

std::shared_ptr<const Recipe> Recipe::Load(const std::string& tokenizer_json, const RecipeSettings& settings,
                                           std::string* why) {
  auto recipe = TryLoad(tokenizer_json, settings);
  if (recipe.ok()) return *recipe;
  if (why != nullptr) *why = recipe.status().message();
  return nullptr;
}

}  // namespace deepinfer::recipe
