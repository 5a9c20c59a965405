// SPDX-License-Identifier: Apache-2.0
#include "recipe/output/default_machine.h"

#include <algorithm>

#include "core/json.h"

namespace deepinfer::recipe {
namespace {

enum Action {
  kOpenBlock, kOpenCall, kEndThinking, kEndOfSentence, kBeginJson, kEndBlock, kEndName, kOpenParameter, kEndCall,
  kEndHeader, kEndValue, kEndValueAndBlock, kEndValueAndOpenCall,
  kFirstStop,  // kFirstStop + i: stop sequence i
};

const Pattern kEos{.text = std::string(kEndOfSentenceSpelling), .action = kEndOfSentence};
const Pattern kStrayThinkEnd{.text = "</think>", .action = kEndThinking};

std::vector<Pattern> Join(std::initializer_list<std::vector<Pattern>> lists) {
  std::vector<Pattern> all;
  for (const auto& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

std::vector<Pattern> Stops(const ParseOptions& options) {
  std::vector<Pattern> patterns;
  for (const std::string& stop : options.stop_sequences) {
    patterns.push_back({.text = stop, .action = kFirstStop + static_cast<int>(patterns.size()), .literal = true});
  }
  return patterns;
}

// Both versions' spellings of a tag, and the one without the underscore that models are known to write.
std::vector<Pattern> Tags(std::string_view before, std::initializer_list<std::string_view> names, int action,
                          bool newlines = false) {
  std::vector<Pattern> patterns;
  for (const std::string_view name : names) {
    for (const std::string_view space : {" ", ""}) {
      patterns.push_back({.text = std::string(before) + std::string(space) + std::string(name),
                          .action = action,
                          .newlines = newlines});
    }
  }
  return patterns;
}

std::vector<Pattern> BlockOpeners(bool newlines) {
  return Tags("<｜DSML｜", {"calls>", "tool_calls>", "toolcalls>"}, kOpenBlock, newlines);
}

std::vector<Pattern> CallOpeners(bool newlines) { return Tags("<｜DSML｜", {"invoke name=\""}, kOpenCall, newlines); }

std::vector<Pattern> Openers(bool tools) {
  if (!tools) return {};
  return Join({BlockOpeners(true), CallOpeners(true)});
}

std::vector<Pattern> BlockClosers() { return Tags("</｜DSML｜", {"calls>", "tool_calls>", "toolcalls>"}, kEndBlock); }

// A call's closer within a value is text, unless the block ends or the next call begins right after it: then the
// value's own closer is missing.
std::vector<Pattern> CallClosersInValue() {
  std::vector<Pattern> patterns;
  for (const std::string space : {" ", ""}) {
    for (const std::string between : {"\n", ""}) {
      const std::string end = "</｜DSML｜" + space + "invoke>" + between;
      for (const std::string block : {"calls>", "tool_calls>"}) {
        patterns.push_back({.text = end + "</｜DSML｜" + space + block, .action = kEndValueAndBlock});
      }
      patterns.push_back({.text = end + "<｜DSML｜" + space + "invoke name=\"", .action = kEndValueAndOpenCall});
    }
  }
  return patterns;
}

std::vector<Pattern> ContentPatterns(bool tools, const std::vector<Pattern>& stops) {
  return Join({Openers(tools), stops, {kStrayThinkEnd, kEos}});
}

std::string_view Trim(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) + 1 - begin);
}

}  // namespace

struct DefaultMachine::Stages {
  explicit Stages(bool tools)
      : reasoning(Join({Openers(tools), {{.text = "</think>", .action = kEndThinking, .newlines = true}}, {kEos}})),
        content(ContentPatterns(tools, {})),
        json_prose(Join({{{.text = "{", .action = kBeginJson}, {.text = "[", .action = kBeginJson}},
                         Openers(tools),
                         {kStrayThinkEnd, kEos}})),
        json(Openers(tools)),
        calls(Join({CallOpeners(false), BlockClosers(), BlockOpeners(false), {kEos}})),
        name({{.text = "\">", .action = kEndName}}),
        arguments(Join({Tags("<｜DSML｜", {"parameter "}, kOpenParameter), Tags("</｜DSML｜", {"invoke>"}, kEndCall),
                        CallOpeners(false), BlockClosers(), {kEos}})),
        header({{.text = ">", .action = kEndHeader}}),
        value(Join({Tags("</｜DSML｜", {"parameter>"}, kEndValue), CallClosersInValue(), {kEos}})),
        after_calls(Openers(tools)),
        finished(std::vector<Pattern>()) {}

  Stage reasoning, content, json_prose, json, calls, name, arguments, header, value, after_calls, finished;
};

const DefaultMachine::Stages& DefaultMachine::SharedStages(bool tools) {
  static const Stages with_tools(true);
  static const Stages without_tools(false);
  return tools ? with_tools : without_tools;
}

DefaultMachine::DefaultMachine(const ParseOptions& options, const OutputLimits& limits)
    : OutputMachine(options, limits), stages_(SharedStages(options.parse_tool_calls)) {
  if (!options.stop_sequences.empty()) {
    const bool tools = options.parse_tool_calls;
    content_with_stops_ = std::make_unique<Stage>(ContentPatterns(tools, Stops(options)));
    json_with_stops_ = std::make_unique<Stage>(Join({Stops(options), Openers(tools)}));
  }
  using enum ThinkingStage;
  leading_ = options.stage == kNone || options.stage == kReasoningStart;
  if (options.starts_in_tool_calls) {
    in_block_ = true;
    Go(At::kCalls);
  } else if (options.stage == kReasoningStart || options.stage == kReasoningContinuation) {
    Go(At::kReasoning);
  } else {
    Go(options.parse_json_output ? At::kJsonProse : At::kContent);
  }
}

void DefaultMachine::Go(At at) {
  at_ = at;
  const Stages& s = stages_;
  const Stage* const content = content_with_stops_ ? content_with_stops_.get() : &s.content;
  const Stage* const json = json_with_stops_ ? json_with_stops_.get() : &s.json;
  const Stage* const stages[] = {&s.reasoning, content,   &s.json_prose, json,           &s.calls,   &s.name,
                                 &s.arguments, &s.header, &s.value,      &s.value,       &s.after_calls, &s.finished};
  Enter(*stages[static_cast<size_t>(at)]);
}

void DefaultMachine::OnText(std::string_view text) {
  while (eos_pending_ > 0) {
    --eos_pending_;
    Text(kEndOfSentenceSpelling);
  }
  Text(text);
}

void DefaultMachine::Text(std::string_view text) {
  switch (at_) {
    case At::kReasoning: Emit(OutputEventKind::kReasoning, text); return;
    case At::kContent: Emit(OutputEventKind::kContent, text); return;
    case At::kJsonProse: JsonProse(text); return;
    case At::kJson: JsonText(text); return;
    case At::kAfterCalls:
    case At::kFinished: return;
    default: break;
  }
  AddRaw(text);
  if (broken_) return;
  switch (at_) {
    case At::kName:
      name_ += text;
      if (name_.size() > limits_.name_bytes_max) Break(Malformed::kBadName);
      break;
    case At::kArguments: body_ += text; break;
    case At::kHeader:
      header_ += text;
      if (header_.size() > limits_.name_bytes_max) Break(Malformed::kBadParameter);
      break;
    case At::kString:
      if (!discard_) EmitEscapedArguments(text);
      break;
    case At::kRaw:
      if (!discard_) value_text_ += text;
      break;
    default: break;
  }
}

// Prose before the JSON is dropped once the JSON begins, and is the answer where none does.
void DefaultMachine::JsonProse(std::string_view text) {
  if (!prose_is_text_) {
    prose_ += text;
    if (prose_.size() <= limits_.json_prose_bytes_max) return;
    prose_is_text_ = true;
    Emit(OutputEventKind::kContent, prose_);
    return;
  }
  Emit(OutputEventKind::kContent, text);
}

void DefaultMachine::JsonText(std::string_view text) {
  Emit(OutputEventKind::kContent, text.substr(0, json_end_.Take(text)));
  if (json_end_.done() && !options_.parse_tool_calls) done_ = true;
}

bool DefaultMachine::OnMatch(int action, std::string_view matched) {
  if (action == kEndOfSentence) {
    ++eos_pending_;
    return true;
  }
  while (eos_pending_ > 0) {  // it was not the end
    --eos_pending_;
    Text(kEndOfSentenceSpelling);
  }
  if (at_ <= At::kJson || at_ == At::kAfterCalls) return MatchInText(action, matched);
  MatchInCalls(action, matched);
  return true;
}

bool DefaultMachine::MatchInText(int action, std::string_view matched) {
  if (action >= kFirstStop && !stops_active_) return false;
  if (action == kBeginJson) {
    if (prose_is_text_) return false;
    prose_.clear();
    Go(At::kJson);
    JsonText(matched);
    return true;
  }
  if (at_ == At::kJson && json_end_.done()) {
    if (action >= kFirstStop) return false;  // what stands after the value is dropped, whatever it is
  } else if (at_ == At::kJson && action < kFirstStop) {
    return false;  // markup within a JSON value is text
  }
  ClearScores();
  if (action >= kFirstStop) {
    Stop(options_.stop_sequences[static_cast<size_t>(action - kFirstStop)]);
    Go(At::kFinished);
  } else if (action == kEndThinking) {
    leading_ = at_ == At::kReasoning;
    if (leading_) Go(options_.parse_json_output ? At::kJsonProse : At::kContent);
  } else {
    if (at_ != At::kAfterCalls) origin_ = at_;
    in_block_ = action == kOpenBlock;
    if (in_block_) {
      raw_.clear();
      Go(At::kCalls);
    } else {
      OpenCall(matched);
    }
  }
  return true;
}

void DefaultMachine::MatchInCalls(int action, std::string_view matched) {
  switch (static_cast<Action>(action)) {
    case kOpenBlock: return;  // the prompt had opened it
    case kOpenCall:
      // Where a call is open, its closer is missing.
      if (at_ == At::kArguments ? CloseCall() : ReportStrayText()) OpenCall(matched);
      return;
    case kEndBlock:
      if (at_ != At::kArguments || CloseCall()) CloseBlock();
      return;
    case kEndValueAndOpenCall:
    case kEndValueAndBlock: {
      const size_t next = matched.find('<', 1);
      AddRaw(matched.substr(0, next));
      EndValue();
      if (!CloseCall()) return;
      action == kEndValueAndBlock ? CloseBlock() : OpenCall(matched.substr(next));
      return;
    }
    default: break;
  }
  AddRaw(matched);
  if (action == kEndName) {
    EndName();
  } else if (action == kOpenParameter) {
    header_.clear();
    Go(At::kHeader);
  } else if (action == kEndHeader) {
    TryHeader();
  } else if (action == kEndValue) {
    EndValue();
  } else if (CloseCall() && !in_block_) {
    CloseBlock();
  }
}

void DefaultMachine::AddRaw(std::string_view text) {
  raw_ += text;
  if (raw_.size() > limits_.arguments_bytes_max) FailLimit("arguments_bytes_max", limits_.arguments_bytes_max);
}

void DefaultMachine::OpenCall(std::string_view matched) {
  raw_.clear();
  AddRaw(matched);
  name_.clear();
  body_.clear();
  parameters_.clear();
  begun_ = false;
  discard_ = false;
  broken_ = false;
  malformed_ = Malformed::kNone;
  Go(At::kName);
}

// From here on nothing of the call goes out; its end is still looked for.
void DefaultMachine::Break(Malformed reason) {
  malformed_ = reason;
  broken_ = true;
}

void DefaultMachine::EndName() {
  // Further attributes are left out; quotes that are none belong to the name.
  if (const auto attributes = ParseParameterHeader("name=\"" + name_ + "\"")) name_ = attributes->name;
  if (name_.empty() || name_.find(kDsmlSpelling) != std::string::npos) Break(Malformed::kBadName);
  Go(At::kArguments);
}

void DefaultMachine::TryHeader() {
  if (!broken_) {
    const auto header = ParseParameterHeader(header_);
    if (!header) {
      header_ += '>';
      return;
    }
    OpenParameter(*header);
  }
  Go(!broken_ && type_ == ParameterType::kString ? At::kString : At::kRaw);
}

void DefaultMachine::OpenParameter(const ParameterHeader& header) {
  type_ = header.type;
  value_text_.clear();
  discard_ = std::find(parameters_.begin(), parameters_.end(), header.name) != parameters_.end();
  if (discard_) {
    malformed_ = Malformed::kDuplicateParameter;
    return;
  }
  if (parameters_.size() >= limits_.parameters_max) {
    FailLimit("parameters_max", limits_.parameters_max);
    return;
  }
  if (!begun_) EmitCallBegin(name_);
  begun_ = true;
  EmitArguments(parameters_.empty() ? "{\"" : ", \"");
  EmitEscapedArguments(header.name);
  EmitArguments(type_ == ParameterType::kString ? "\": \"" : "\": ");
  parameters_.push_back(header.name);
}

void DefaultMachine::EndValue() {
  if (!broken_ && !discard_) {
    const std::string_view json = Trim(value_text_);
    if (at_ == At::kString) {
      EmitArguments("\"");
    } else if (ParseJson(json, {.size_bytes_max = limits_.arguments_bytes_max}).ok()) {
      EmitArguments(json);
    } else {
      EmitArguments("\"");
      EmitEscapedArguments(value_text_);
      EmitArguments("\"");
    }
  }
  Go(At::kArguments);
}

// False where the answer ends with it.
bool DefaultMachine::CloseCall() {
  if (!broken_ && !begun_) {
    const std::string_view body = Trim(body_);
    const auto parsed = ParseJson(body.empty() ? "{}" : body, {.size_bytes_max = limits_.arguments_bytes_max});
    if (parsed.ok() && parsed->IsObject()) {
      EmitCallBegin(name_);
      EmitArguments(body.empty() ? "{}" : body);
      begun_ = true;
    } else {
      Break(Malformed::kBadBody);
    }
  } else if (!broken_) {
    EmitArguments("}");
  }
  if (!broken_) EmitCallEnd();
  if (malformed_ != Malformed::kNone) EmitMalformed(begun_ ? num_calls() - 1 : -1, malformed_, raw_);
  raw_.clear();
  done_ = done_ || (options_.one_call_only && num_calls() > 0);
  Go(done_ ? At::kFinished : At::kCalls);
  return !done_;
}

// Calls that the reasoning held do not end it.
void DefaultMachine::CloseBlock() {
  ReportStrayText();
  if (origin_ == At::kReasoning) {
    leading_ = true;
    Go(At::kReasoning);
  } else {
    Go(At::kAfterCalls);
  }
}

bool DefaultMachine::ReportStrayText() {
  if (!Trim(raw_).empty()) EmitMalformed(-1, Malformed::kNoCall, raw_);
  raw_.clear();
  return true;
}

// The output ended where calls may follow. What is left of a tag is no text: the block's closer is not missed.
void DefaultMachine::EndInBlock() {
  const std::string_view text = Trim(raw_);
  if (text.starts_with("</")) return;
  if (text.starts_with("<")) {
    cut_ = true;
    EmitMalformed(-1, Malformed::kCut, raw_);
    return;
  }
  ReportStrayText();
}

void DefaultMachine::End() {
  // The beginning of a closer is no part of a value that was cut.
  if (at_ == At::kString || at_ == At::kRaw) discard_ = true;
  Flush();
  eos_pending_ = 0;
  switch (at_) {
    case At::kJsonProse:
      if (!prose_is_text_) Emit(OutputEventKind::kContent, prose_);
      return;
    case At::kCalls: EndInBlock(); return;
    case At::kName:
      if (!in_block_) {  // "invoke" without a block and without an end: prose about the format
        Emit(origin_ == At::kReasoning ? OutputEventKind::kReasoning : OutputEventKind::kContent, raw_);
        return;
      }
      [[fallthrough]];
    case At::kArguments:
    case At::kHeader:
    case At::kString:
    case At::kRaw:
      cut_ = true;
      EmitMalformed(begun_ ? num_calls() - 1 : -1, Malformed::kCut, raw_);
      return;
    default: return;
  }
}

}  // namespace deepinfer::recipe
