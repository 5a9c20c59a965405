// SPDX-License-Identifier: Apache-2.0
// The public interface over the modules: no rules of its own.
#include <algorithm>
#include <cmath>
#include <utility>

#include "deepinfer/recipe.h"
#include "recipe/encode.h"
#include "recipe/output/answer_error.h"
#include "recipe/output/output_parser.h"
#include "recipe/output/output_vocabulary.h"
#include "recipe/output/response_writer.h"
#include "recipe/output/sse.h"
#include "recipe/output/utf8_repair.h"
#include "recipe/parse_request.h"

namespace deepinfer::recipe {
namespace {

class PreparedRequestImpl : public PreparedRequest {
 public:
  PreparedRequestImpl(Request request, const Prompt& prompt, std::vector<std::vector<TokenId>> prompts,
                      std::vector<PromptImage> images)
      : request_(std::move(request)),
        prompts_(std::move(prompts)),
        text_(prompt.Text()),
        ranges_(prompt.ControlRanges()),
        images_(std::move(images)) {}

  const std::vector<std::vector<int32_t>>& prompts() const override { return prompts_; }
  const std::string& text() const override { return text_; }
  const std::vector<std::pair<size_t, size_t>>& control_ranges() const override { return ranges_; }
  const std::vector<PromptImage>& images() const override { return images_; }
  const std::vector<std::string>& stop_sequences() const override { return request_.parsing.stop_sequences; }
  const std::string& model() const override { return request_.answer.model; }
  bool stream() const override { return request_.answer.stream; }
  bool prompt_logprobs() const override { return request_.answer.prompt_logprobs; }
  bool store() const override { return request_.answer.echo.store; }
  const std::string& input_items() const override { return request_.answer.echo.input_items; }
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
    if (!request_.sampling.constraint) {
      if (!request_.content) return "";
      static constexpr const char* kKinds[] = {"json", "json", "regex", "choice", "grammar", "structural_tag"};
      return kKinds[static_cast<size_t>(request_.content->kind)];
    }
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
    if (request_.sampling.constraint) return request_.sampling.constraint->schema;
    if (!request_.content) return "";
    if (request_.content->kind != ContentConstraint::Kind::kChoice) return request_.content->text;
    Json::Array choices;
    for (const std::string& choice : request_.content->choices) choices.emplace_back(choice);
    return WriteJson(Json(std::move(choices)));
  }

  std::optional<int64_t> ResolveMaxTokens(int64_t prompt_tokens, int64_t context_tokens) const override {
    const auto tokens = recipe::ResolveMaxTokens(request_, prompt_tokens, context_tokens);
    return tokens.ok() ? std::optional(*tokens) : std::nullopt;
  }

 private:
  Request request_;
  std::vector<std::vector<int32_t>> prompts_;
  std::string text_;
  std::vector<std::pair<size_t, size_t>> ranges_;
  std::vector<PromptImage> images_;
};

std::string BytesOf(std::span<const int32_t> ids, const OutputVocabulary& vocabulary) {
  std::string bytes, text;
  for (const int32_t id : ids) bytes += vocabulary.Bytes(id);
  Utf8Repair repair;
  const auto append = [&](std::string_view piece) { text += piece; };
  repair.Push(bytes, append);
  repair.Flush(append);
  return text;
}

class AnswerStreamImpl : public AnswerStream {
 public:
  AnswerStreamImpl(std::shared_ptr<const PreparedRequest> request, const AnswerInfo& info,
                   std::shared_ptr<const OutputVocabulary> vocabulary)
      : request_(std::move(request)), vocabulary_(std::move(vocabulary)) {
    const Request& from = request_->internal();
    AnswerContext context;
    num_choices_ = from.sampling.num_choices * static_cast<int>(request_->prompts().size());
    context.id = info.id;
    context.model = info.model;
    context.system_fingerprint = info.system_fingerprint;
    context.created = info.created;
    context.clock = info.clock;
    context.call_id_seed = std::hash<std::string>()(info.id);
    context.prompt_tokens = info.prompt_tokens;
    context.cached_tokens = info.cached_tokens;
    context.num_choices = num_choices_;
    context.vocabulary = vocabulary_.get();
    for (size_t i = 0; from.answer.echo_prompt && i < from.raw.size(); ++i) {
      const Request::RawPrompt& prompt = from.raw[i];
      context.echoed_prompts.push_back(prompt.ids.empty() ? prompt.text : BytesOf(prompt.ids, *vocabulary_));
    }
    writer_ = ResponseWriter::Create(std::move(context), from.answer, from.parsing, from.profile);
    parsers_.resize(static_cast<size_t>(num_choices_));
  }

  int num_choices() const override { return num_choices_; }
  void Begin(std::string* sse) override {
    out_.clear();
    if (!begun_) writer_->Begin(sse == nullptr ? nullptr : &out_);
    begun_ = true;
    Append(sse);
  }
  void SetCachedTokens(int64_t cached_tokens) override { writer_->SetCachedTokens(cached_tokens); }
  void SetPromptScores(size_t prompt, std::span<const TokenScore> scores, std::string* sse) override {
    const std::vector<int32_t>& ids = request_->prompts()[prompt];
    std::vector<TokenLogprob> tokens;
    std::vector<TokenCandidate> candidates;
    // The begin token is part of the echo only where the client wrote it.
    if (request_->internal().raw[prompt].ids.size() == ids.size()) tokens.push_back({.id = ids[0], .logprob = NAN});
    for (size_t i = 0; i < scores.size() && i + 1 < ids.size(); ++i) {
      tokens.push_back({.id = ids[i + 1],
                        .logprob = scores[i].logprob,
                        .top_begin = static_cast<uint32_t>(candidates.size()),
                        .top_count = static_cast<uint32_t>(scores[i].top.size())});
      candidates.insert(candidates.end(), scores[i].top.begin(), scores[i].top.end());
    }
    Begin(sse);
    writer_->AddPromptLogprobs(prompt, std::move(tokens), std::move(candidates), sse == nullptr ? nullptr : &out_);
    Append(sse);
  }
  bool PushTokens(int choice, std::span<const int32_t> ids, std::span<const TokenScore> scores,
                  std::string* sse) override {
    // The engine makes one token at least; where none was asked for, it is not part of the answer.
    if (request_->internal().sampling.max_tokens == 0) return true;
    return Run(choice, sse, [&](OutputParser& parser) { return parser.PushTokens(ids, scores, &events_); });
  }
  bool PushText(int choice, std::string_view text, int64_t token_count, std::string* sse) override {
    return Run(choice, sse, [&](OutputParser& parser) { return parser.PushText(text, token_count, &events_); });
  }
  bool Finish(int choice, FinishKind reason, std::string* sse) override {
    if (request_->internal().sampling.max_tokens == 0) reason = FinishKind::kLength;
    const BackendFinish finish = reason == FinishKind::kStop     ? BackendFinish::kStop
                                 : reason == FinishKind::kLength ? BackendFinish::kLength
                                                                 : BackendFinish::kContentFilter;
    if (!Run(choice, sse, [&](OutputParser& parser) { return parser.Finish(finish, &events_); })) return false;
    out_.clear();
    writer_->EndChoice(choice, parsers_[static_cast<size_t>(choice)]->usage(), sse == nullptr ? nullptr : &out_);
    Append(sse);
    return true;
  }
  void Fail(FailureKind kind, std::string_view message, std::string* sse) override {
    if (failed_) return;
    const Code code = kind == FailureKind::kInternal      ? Code::kInternal
                      : kind == FailureKind::kUnavailable ? Code::kUnavailable
                      : kind == FailureKind::kDeadline    ? Code::kDeadlineExceeded
                                                          : Code::kCancelled;
    Begin(sse);
    FailWith(Status(code, std::string(message)), sse);
  }
  void KeepAlive(std::string* sse) const override { AppendSse(writer_->KeepAlive(), sse); }
  bool done(int choice) const override {
    const auto& parser = parsers_[static_cast<size_t>(choice)];
    return failed_ || (parser != nullptr && parser->done());
  }
  std::string Body() const override { return writer_->Body(); }

 private:
  template <typename Push>
  bool Run(int choice, std::string* sse, Push push) {
    Begin(sse);
    const Status status = TryRun(choice, sse != nullptr, push);
    Append(sse);
    if (!status.ok() && !failed_) FailWith(status, sse);
    return status.ok();
  }

  template <typename Push>
  Status TryRun(int choice, bool stream, Push push) {
    if (failed_) return Error(Code::kFailedPrecondition, "the answer has ended with an error");
    auto& parser = parsers_[static_cast<size_t>(choice)];
    if (parser == nullptr) {
      const Request& request = request_->internal();
      DI_ASSIGN_OR_RETURN(parser, OutputParser::Create(request.parsing, request.profile, vocabulary_.get()));
    }
    events_.Clear();
    DI_RETURN_IF_ERROR(push(*parser));
    writer_->Add(choice, events_, stream ? &out_ : nullptr);
    return {};
  }

  void FailWith(const Status& status, std::string* sse) {
    failed_ = true;
    out_.clear();
    writer_->Fail(ErrorFromStatus(status), sse == nullptr ? nullptr : &out_);
    Append(sse);
  }

  // What was written since out_ was cleared.
  void Append(std::string* sse) {
    for (const SseEvent& event : out_) AppendSse(event, sse);
    out_.clear();
  }

  std::shared_ptr<const PreparedRequest> request_;
  std::shared_ptr<const OutputVocabulary> vocabulary_;
  std::unique_ptr<ResponseWriter> writer_;
  std::vector<std::unique_ptr<OutputParser>> parsers_;  // one for each choice
  OutputEvents events_;
  std::vector<SseEvent> out_;
  int num_choices_ = 1;
  bool begun_ = false;
  bool failed_ = false;
};

class RecipeImpl : public Recipe {
 public:
  RecipeImpl(RecipeOptions options, std::shared_ptr<const PromptEncoder> encoder,
             std::shared_ptr<const OutputVocabulary> vocabulary)
      : options_(std::move(options)), encoder_(std::move(encoder)), vocabulary_(std::move(vocabulary)) {}

  std::shared_ptr<const PreparedRequest> Prepare(Protocol protocol, std::string_view body, RequestError* error,
                                                 const EarlierItemsFn& earlier) const override {
    auto prepared = TryPrepare(protocol, body, earlier);
    if (prepared.ok()) return *prepared;
    AnswerError answer = ErrorFromStatus(prepared.status());
    error->message = prepared.status().message();
    error->field = error->message.starts_with('/') ? error->message.substr(0, error->message.find(':')) : "";
    if (!error->field.empty()) answer.param = error->field.substr(1);
    const Code code = prepared.status().code();
    error->http_status = code == Code::kInternal ? 500 : code == Code::kNotFound ? 404 : 400;
    if (code == Code::kNotFound && answer.param == "previous_response_id") {
      error->http_status = 400;
      answer.code = Code::kInvalidArgument;
      answer.api_code = "previous_response_not_found";
    } else if (code == Code::kNotFound && answer.param == "model") {
      answer.api_code = "model_not_found";
    }
    error->body = ErrorBody(protocol, options_.profile, answer);
    return nullptr;
  }

  std::unique_ptr<AnswerStream> Answer(std::shared_ptr<const PreparedRequest> request,
                                       const AnswerInfo& info) const override {
    return std::make_unique<AnswerStreamImpl>(std::move(request), info, vocabulary_);
  }

  std::vector<int32_t> Tokenize(std::string_view text) const override {
    auto ids = encoder_->tokenizer().EncodePlain(text);
    return ids.ok() ? *std::move(ids) : std::vector<int32_t>();
  }
  std::string Detokenize(std::span<const int32_t> ids) const override { return BytesOf(ids, *vocabulary_); }

 private:
  Result<std::shared_ptr<const PreparedRequest>> TryPrepare(Protocol protocol, std::string_view body,
                                                            const EarlierItemsFn& earlier) const {
    DI_ASSIGN_OR_RETURN(Request request, ParseRequest(protocol, body, options_, earlier));
    const Prompt prompt = RenderRequest(request);
    std::vector<std::vector<TokenId>> prompts(std::max<size_t>(1, request.raw.size()));
    if (request.raw.empty()) {
      DI_ASSIGN_OR_RETURN(prompts[0], encoder_->Encode(prompt));
    }
    for (size_t i = 0; i < request.raw.size(); ++i) {
      DI_ASSIGN_OR_RETURN(prompts[i], EncodeRequest(request, *encoder_, i));
    }
    std::vector<PromptImage> images;
    const auto image_id = encoder_->Id(Control::kImage);
    for (size_t i = 0; i < prompts[0].size() && images.size() < prompt.images().size(); ++i) {
      if (prompts[0][i] == image_id) images.push_back({i, prompt.images()[images.size()].source});
    }
    return std::shared_ptr<const PreparedRequest>(std::make_shared<PreparedRequestImpl>(
        std::move(request), prompt, std::move(prompts), std::move(images)));
  }

  RecipeOptions options_;
  std::shared_ptr<const PromptEncoder> encoder_;
  std::shared_ptr<const OutputVocabulary> vocabulary_;
};

Result<std::shared_ptr<const Recipe>> TryLoad(const std::string& path, const RecipeSettings& settings) {
  RecipeOptions options;
  options.profile = settings.profile;
  options.default_thinking = settings.default_thinking;
  options.default_store = settings.default_store;
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
