// SPDX-License-Identifier: Apache-2.0
#include "recipe/output/compatible_machine.h"

#include <vector>

namespace deepinfer::recipe {
namespace {

enum Action {
  kOpenCalls, kEndThinking, kBeginJson, kBeginFencedJson, kEndJson, kBeginCall, kEndCalls, kEndName, kBeginParameter,
  kEndCall, kEndKey, kStringType, kRawType, kEndValue,
  kFirstStop,  // kFirstStop + i: stop sequence i
};

const Pattern kOpener{.text = "<｜DSML｜", .action = kOpenCalls, .newlines = true};

std::vector<Pattern> Stops(const ParseOptions& options) {
  std::vector<Pattern> patterns;
  for (const std::string& stop : options.stop_sequences) {
    patterns.push_back({.text = stop, .action = kFirstStop + static_cast<int>(patterns.size()), .literal = true});
  }
  return patterns;
}

std::vector<Pattern> With(std::vector<Pattern> patterns, const ParseOptions& options,
                          std::initializer_list<Pattern> more) {
  if (options.parse_tool_calls) patterns.push_back(kOpener);
  patterns.insert(patterns.end(), more);
  return patterns;
}

}  // namespace

CompatibleMachine::CompatibleMachine(const ParseOptions& options, const OutputLimits& limits)
    : OutputMachine(options, limits),
      reasoning_(With({}, options, {{.text = "</think>", .action = kEndThinking, .newlines = true}})),
      content_(With(Stops(options), options, {{.text = "</think>", .action = kEndThinking}})),
      json_prose_(With({{.text = "```json\n", .action = kBeginFencedJson},
                        {.text = "```\n", .action = kBeginFencedJson},
                        {.text = "{", .action = kBeginJson},
                        {.text = "[", .action = kBeginJson}},
                       options, {{.text = "</think>", .action = kEndThinking}})),
      json_([&] {
        std::vector<Pattern> patterns = Stops(options);
        patterns.push_back({.text = "\n```", .action = kEndJson});
        return Stage(patterns);
      }()),
      json_after_(With({}, options, {})),
      calls_({{.text = "invoke name=\"", .action = kBeginCall},
              {.text = "</｜DSML｜tool_calls>", .action = kEndCalls},
              {.text = "</｜DSML｜ calls>", .action = kEndCalls}}),
      name_stage_({{.text = "\"", .action = kEndName}}),
      arguments_({{.text = "parameter name=", .action = kBeginParameter}, {.text = "</｜DSML｜", .action = kEndCall}}),
      key_({{.text = " ", .action = kEndKey}}),
      type_({{.text = "\"true\">", .action = kStringType}, {.text = "\"false\">", .action = kRawType}}),
      value_({{.text = "</｜DSML｜", .action = kEndValue}}),
      finished_(std::vector<Pattern>()) {
  using enum ThinkingStage;
  leading_ = options.stage == kNone || options.stage == kReasoningStart;
  if (options.starts_in_tool_calls) {
    Go(At::kCalls);
  } else if (options.stage == kReasoningStart || options.stage == kReasoningContinuation) {
    Go(At::kReasoning);
  } else {
    Go(options.parse_json_output ? At::kJsonProse : At::kContent);
  }
}

void CompatibleMachine::Go(At at) {
  at_ = at;
  space_emitted_ = false;
  const Stage* const stages[] = {&reasoning_,  &content_, &json_prose_, &json_, &json_after_, &calls_,   &name_stage_,
                                 &arguments_, &key_,     &type_,       &value_, &value_,      &finished_};
  Enter(*stages[static_cast<size_t>(at)]);
}

void CompatibleMachine::OnText(std::string_view text) {
  switch (at_) {
    case At::kReasoning: Emit(OutputEventKind::kReasoning, text); break;
    case At::kContent: Emit(OutputEventKind::kContent, text); break;
    case At::kJson: Emit(OutputEventKind::kContent, text); break;
    case At::kJsonProse:
    case At::kJsonAfter:
      if (!space_emitted_) Emit(OutputEventKind::kContent, " ");
      space_emitted_ = true;
      break;
    case At::kName:
      name_ += text;
      if (name_.size() > limits_.name_bytes_max) FailLimit("name_bytes_max", limits_.name_bytes_max);
      break;
    case At::kKey:
    case At::kRaw: EmitArguments(text); break;
    case At::kString: EmitEscapedArguments(text); break;
    case At::kCalls:
    case At::kArguments:
    case At::kType:
    case At::kFinished: break;
  }
}

bool CompatibleMachine::OnMatch(int action, std::string_view matched) {
  if (action >= kFirstStop) {
    ClearScores();
    Stop(options_.stop_sequences[static_cast<size_t>(action - kFirstStop)]);
    Go(At::kFinished);
    return true;
  }
  // Tokens of a marker have no entry in any list; the brace that begins the JSON is content.
  if (action != kBeginJson) ClearScores();
  switch (static_cast<Action>(action)) {
    case kOpenCalls: Go(At::kCalls); break;
    case kEndThinking: ThinkEnd(); break;
    case kBeginFencedJson: Go(At::kJson); break;
    case kBeginJson:
      Go(At::kJson);
      Emit(OutputEventKind::kContent, matched);
      break;
    case kEndJson: Go(At::kJsonAfter); break;
    case kBeginCall:
      name_.clear();
      Go(At::kName);
      break;
    case kEndCalls: Go(At::kFinished); break;
    case kEndName:
      EmitCallBegin(name_);
      first_parameter_ = true;
      Go(At::kArguments);
      break;
    case kBeginParameter: OpenParameter(); break;
    case kEndCall: CloseCall(); break;
    case kEndKey:
      EmitArguments(": ");
      Go(At::kType);
      break;
    case kStringType:
      EmitArguments("\"");
      Go(At::kString);
      break;
    case kRawType: Go(At::kRaw); break;
    case kEndValue:
      if (at_ == At::kString) EmitArguments("\"");
      Go(At::kArguments);
      break;
    case kFirstStop: break;  // above
  }
  return true;
}

// The end of the reasoning; in content it is a stray one that is left out.
void CompatibleMachine::ThinkEnd() {
  const bool stray = at_ != At::kReasoning;
  leading_ = !stray;
  if (!stray) Go(options_.parse_json_output ? At::kJsonProse : At::kContent);
}

void CompatibleMachine::OpenParameter() {
  EmitArguments(first_parameter_ ? "{" : ", ");
  first_parameter_ = false;
  Go(At::kKey);
}

void CompatibleMachine::CloseCall() {
  EmitArguments(first_parameter_ ? "{}" : "}");
  EmitCallEnd();
  Go(At::kCalls);
}

}  // namespace deepinfer::recipe
