// SPDX-License-Identifier: Apache-2.0
// deepinfer chat: a conversation in the terminal, in the model's own prompt format.
//
// Each turn renders the whole conversation; what it has in common with the turns before comes from the engine's cache.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iostream>

#include "cli/cli.h"
#include "cli/common.h"
#include "cli/constraint.h"
#include "cli/interrupt.h"
#include "engine/generate.h"
#include "recipe/control.h"
#include "recipe/encode.h"
#include "recipe/output/output_parser.h"
#include "recipe/render.h"

namespace deepinfer::cli {
namespace {

constexpr const char* kHelp =
    "/help              this\n"
    "/new               forget the conversation\n"
    "/system TEXT       set the system message and forget the conversation\n"
    "/think on|off      let the model think before it answers\n"
    "/quit, Ctrl-D      leave\n"
    "Several lines: begin with \"\"\" and end with \"\"\", or end a line with \\. Ctrl-C stops an answer.\n";

constexpr const char* kDim = "\033[2m";
constexpr const char* kPlain = "\033[0m";

class ChatLoop {
 public:
  ChatLoop(const ChatOptions& options, engine::BatchEngine& engine, const recipe::PromptEncoder& encoder,
           const recipe::OutputVocabulary& vocabulary)
      : options_(options),
        engine_(engine),
        encoder_(encoder),
        vocabulary_(vocabulary),
        terminal_(isatty(STDIN_FILENO) != 0 && isatty(STDOUT_FILENO) != 0) {
    conversation_.thinking = options.thinking;
    SetSystem(options.system);
  }

  // What every answer must match, from now on. Errors name the flag.
  Status Constrain(const recipe::ContentConstraint& content);
  Status Go();

 private:
  // REQUIRES: UTF-8.
  void SetSystem(const std::string& text);
  // One input of one or more lines; nothing at the end of the input.
  std::optional<std::string> ReadInput();
  bool ReadLine(const char* prompt, std::string* line);
  bool Command(const std::string& line);
  // `input` is UTF-8.
  Status Answer(const std::string& input);
  // Writes an answer as it comes and keeps what the next prompt needs of it.
  Status Show(const recipe::OutputEvents& events, recipe::Message* answer);

  const ChatOptions& options_;
  engine::BatchEngine& engine_;
  const recipe::PromptEncoder& encoder_;
  const recipe::OutputVocabulary& vocabulary_;
  InterruptScope interrupt_;
  recipe::Conversation conversation_;
  std::shared_ptr<const grammar::CompiledGrammar> grammar_;
  std::string system_;
  bool terminal_;
  bool quit_ = false;
  bool dim_ = false;
};

Status ChatLoop::Constrain(const recipe::ContentConstraint& content) {
  DI_ASSIGN_OR_RETURN(grammar_, CompileConstraint(content, engine_));
  DI_ASSIGN_OR_RETURN(conversation_.format, FormatOf(content));
  return Status();
}

void ChatLoop::SetSystem(const std::string& text) {
  system_ = text;
  conversation_.messages.clear();
  if (!text.empty()) conversation_.messages.emplace_back(recipe::Role::kSystem, recipe::Content(text));
}

bool ChatLoop::ReadLine(const char* prompt, std::string* line) {
  while (true) {
    if (terminal_) std::fputs(prompt, stdout), std::fflush(stdout);
    if (std::getline(std::cin, *line)) return true;
    if (!interrupt_.interrupted()) return false;
    // Ctrl-C at the prompt: the line is dropped, the program stays.
    interrupt_.Reset();
    std::cin.clear();
    std::clearerr(stdin);
    std::fputs("\n", stdout);
  }
}

std::optional<std::string> ChatLoop::ReadInput() {
  std::string text, line;
  if (!ReadLine("> ", &line)) return std::nullopt;
  if (line.starts_with("\"\"\"")) {
    text = line.substr(3);
    while (!text.ends_with("\"\"\"")) {
      if (!ReadLine(". ", &line)) return text;
      text += "\n" + line;
    }
    return text.substr(text.starts_with("\n") ? 1 : 0, text.size() - 3 - (text.starts_with("\n") ? 1 : 0));
  }
  while (line.ends_with("\\")) {
    text += line.substr(0, line.size() - 1) + "\n";
    if (!ReadLine(". ", &line)) return text;
  }
  return text + line;
}

bool ChatLoop::Command(const std::string& line) {
  const std::string_view text = line;
  if (text == "/quit" || text == "/exit") {
    quit_ = true;
  } else if (text == "/new") {
    SetSystem(system_);
  } else if (text.starts_with("/system")) {
    SetSystem(std::string(text.substr(std::min<size_t>(8, text.size()))));
  } else if (text == "/think on" || text == "/think off") {
    conversation_.thinking = text.ends_with("on");
  } else if (text == "/help") {
    std::fputs(kHelp, stdout);
  } else if (text.starts_with("/")) {
    Note("{}: no such command; /help lists them\n", text);
  } else {
    return false;
  }
  return true;
}

Status ChatLoop::Show(const recipe::OutputEvents& events, recipe::Message* answer) {
  for (const recipe::OutputEvent& event : events.events()) {
    const std::string_view text = events.Text(event);
    const bool reasoning = event.kind == recipe::OutputEventKind::kReasoning;
    if (reasoning) {
      if (!answer->reasoning) answer->reasoning.emplace();
      *answer->reasoning += text;
    } else if (event.kind == recipe::OutputEventKind::kContent) {
      answer->content.text += text;
    } else {
      continue;
    }
    if (terminal_ && reasoning != dim_) DI_RETURN_IF_ERROR(Print(reasoning ? kDim : std::string(kPlain) + "\n"));
    dim_ = reasoning;
    DI_RETURN_IF_ERROR(Print(text));
  }
  return Status();
}

Status ChatLoop::Answer(const std::string& input) {
  const size_t messages_before = conversation_.messages.size();
  conversation_.messages.emplace_back(recipe::Role::kUser, recipe::Content(input));
  GenerationRequest request{.max_tokens = options_.max_tokens};
  DI_ASSIGN_OR_RETURN(request.prompt,
                      encoder_.Encode(recipe::RenderConversation(conversation_, recipe::ModelVersion::kV41)));
  SetSampling(options_.sampling, &request);
  request.grammar = grammar_;
  if (grammar_ && conversation_.thinking) request.grammar_after = engine_.FindToken(recipe::Spelling(recipe::Control::kThinkEnd));
  const recipe::ParseOptions parsing{.stage = conversation_.thinking ? recipe::ThinkingStage::kReasoningStart
                                                                     : recipe::ThinkingStage::kNone};
  DI_ASSIGN_OR_RETURN(const auto parser,
                      recipe::OutputParser::Create(parsing, recipe::Profile::kDefault, &vocabulary_));
  recipe::Message answer(recipe::Role::kAssistant);
  recipe::OutputEvents events;
  Status shown;
  interrupt_.Reset();
  const auto on_token = [&](const engine::GeneratedToken& token) {
    if (token.id < 0 || token.is_end) return true;
    events.Clear();
    shown = parser->PushTokens(std::span(&token.id, 1), {}, &events);
    if (shown.ok()) shown = Show(events, &answer);
    return shown.ok() && !interrupt_.interrupted();
  };
  const Result<engine::GenerateResult> result = engine::Generate(engine_, request, on_token, [&] { return !interrupt_.interrupted(); });
  if (!result.ok() || result->ids.empty()) {
    // The turn did not happen: what was said before it is still there.
    conversation_.messages.resize(messages_before);
    if (result.ok()) Note("(stopped)\n");
    interrupt_.Reset();
    return result.status();
  }
  DI_RETURN_IF_ERROR(shown);
  events.Clear();
  DI_RETURN_IF_ERROR(parser->Finish(recipe::BackendFinish::kStop, &events));
  DI_RETURN_IF_ERROR(Show(events, &answer));
  DI_RETURN_IF_ERROR(Print(terminal_ && dim_ ? std::string(kPlain) + "\n" : "\n"));
  dim_ = false;
  conversation_.messages.push_back(std::move(answer));
  if (interrupt_.interrupted()) Note("(stopped)\n");
  interrupt_.Reset();
  if (options_.stats) {
    Note("({} prompt tokens, {} of them cached, in {:.2f} s, {} tokens in {:.2f} s)\n", request.prompt.size(),
         result->cached_tokens, result->prefill_seconds, result->ids.size(), result->decode_seconds);
  }
  return Status();
}

Status ChatLoop::Go() {
  if (terminal_) std::fputs("/help lists the commands.\n", stdout);
  while (!quit_) {
    const std::optional<std::string> input = ReadInput();
    if (!input) break;
    if (input->empty()) continue;
    Status status = CheckUtf8("input", *input);
    if (status.ok() && Command(*input)) continue;
    if (status.ok()) status = Answer(*input);
    if (status.code() == Code::kUnavailable || status.code() == Code::kDataLoss) return status;
    if (!status.ok()) Note("{} (/new starts anew)\n", status.message());
  }
  return Status();
}

}  // namespace

Result<int> Chat(const ChatOptions& options) {
  DI_RETURN_IF_ERROR(CheckUtf8("--system", options.system));
  DI_ASSIGN_OR_RETURN(const auto content, ReadConstraint(options.constraint));
  DI_ASSIGN_OR_RETURN(const std::unique_ptr<engine::BatchEngine> engine, OpenEngine(options.model));
  const engine::LoadedModel& loaded = engine->loaded();
  GenerationRequest request{.prompt = {0}};
  SetSampling(options.sampling, &request);
  DI_RETURN_IF_ERROR(engine->Check(request));
  DI_ASSIGN_OR_RETURN(const auto encoder, recipe::PromptEncoder::Make(loaded.shared_tokenizer()));
  DI_ASSIGN_OR_RETURN(const recipe::OutputVocabulary vocabulary, recipe::OutputVocabulary::Create(loaded.tokenizer()));
  ChatLoop loop(options, *engine, *encoder, vocabulary);
  if (content) DI_RETURN_IF_ERROR(loop.Constrain(*content));
  DI_RETURN_IF_ERROR(loop.Go());
  return kExitOk;
}

}  // namespace deepinfer::cli
