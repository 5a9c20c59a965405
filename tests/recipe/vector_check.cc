// SPDX-License-Identifier: Apache-2.0
#include "tests/recipe/vector_check.h"

#include <lzma.h>
#include <openssl/evp.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <sstream>
#include <thread>
#include <utility>

#include "recipe/parse_request.h"
#include "recipe/prompt_json.h"
#include "recipe/render.h"

namespace deepinfer::recipe {
namespace {

Result<std::string> Decompress(const std::string& data) {
  lzma_stream stream = LZMA_STREAM_INIT;
  if (lzma_stream_decoder(&stream, UINT64_MAX, 0) != LZMA_OK) return Error(Code::kInternal, "lzma");
  stream.next_in = reinterpret_cast<const uint8_t*>(data.data());
  stream.avail_in = data.size();
  std::string out;
  std::vector<uint8_t> buffer(1 << 20);
  lzma_ret result = LZMA_OK;
  while (result == LZMA_OK) {
    stream.next_out = buffer.data();
    stream.avail_out = buffer.size();
    result = lzma_code(&stream, LZMA_FINISH);
    out.append(reinterpret_cast<const char*>(buffer.data()), buffer.size() - stream.avail_out);
  }
  lzma_end(&stream);
  if (result != LZMA_STREAM_END) return Error(Code::kDataLoss, "not an xz file");
  return out;
}

// Member by name; null where there is none.
const Json& At(const Json& value, std::string_view key) {
  static const Json kNull;
  const Json* const found = value.Find(key);
  return found != nullptr ? *found : kNull;
}
std::string StringAt(const Json& value, std::string_view key) {
  const Json& found = At(value, key);
  return found.IsString() ? found.AsString() : "";
}
Json OrNull(const std::optional<std::string>& text) { return text ? Json(*text) : Json(); }

std::string Sha256Hex(const void* data, size_t size, size_t digits) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned length = 0;
  EVP_Digest(data, size, digest, &length, EVP_sha256(), nullptr);
  std::string hex;
  for (unsigned i = 0; i < length; ++i) hex += fmt::format("{:02x}", digest[i]);
  return hex.substr(0, digits);
}

std::string Short(std::string text) {
  if (text.size() > 700) text = text.substr(0, 340) + " ... " + text.substr(text.size() - 340);
  return text;
}

RecipeOptions OptionsOf(const Json& record, Profile profile) {
  RecipeOptions options;
  options.profile = profile;
  const Json& given = At(record, "options");
  if (const Json* thinking = given.Find("default_thinking_mode")) options.default_thinking = thinking->AsBool();
  options.reject_missing_reasoning = StringAt(given, "missing_reasoning") == "reject";
  const auto web_search = [&](std::string_view key, WebSearch* out) {
    if (given.Find(key) != nullptr) *out = StringAt(given, key) == "drop" ? WebSearch::kDrop : WebSearch::kReject;
  };
  web_search("responses_web_search", &options.responses_web_search);
  web_search("messages_web_search", &options.messages_web_search);
  if (const Json* bound = given.Find("thinking_max_tokens_upper_bound")) options.max_tokens_thinking = *bound->ToInt64();
  if (const Json* bound = given.Find("non_thinking_max_tokens_upper_bound")) {
    options.max_tokens_non_thinking = *bound->ToInt64();
  }
  if (const Json* aliases = given.Find("aliases")) {
    for (const auto& [name, version] : aliases->Members()) {
      options.models.emplace_back(name, version.AsString() == "V4" ? ModelVersion::kV4 : ModelVersion::kV41);
    }
  }
  return options;
}

// --- a Conversation in the form of the records, and back ---

std::string WithPlaceholders(const Content& content, const std::string& placeholder) {
  std::string text;
  size_t done = 0;
  for (const Image& image : content.images) {
    text += content.text.substr(done, image.offset - done) + placeholder;
    done = image.offset;
  }
  return text + content.text.substr(done);
}

Json ToolRecord(const ToolDefinition& tool) {
  Json::Object record = {
      {"name", Json(tool.name)},
      {"description", OrNull(tool.description)},
      {"parameters", tool.parameters.IsNull() ? Json(Json::Object()) : tool.parameters},
      {"strict", tool.strict ? Json(*tool.strict) : Json()},
  };
  if (tool.deferred) record.emplace_back("defer_loading", Json(true));
  return Json(std::move(record));
}

Json ToolRecords(const std::vector<ToolDefinition>& tools) {
  Json::Array records;
  for (const ToolDefinition& tool : tools) records.push_back(ToolRecord(tool));
  return Json(std::move(records));
}

Json ImageRecords(const std::vector<Image>& images) {
  static constexpr const char* kDetails[] = {"high", "low", "original", "auto"};
  Json::Array records;
  for (const Image& image : images) {
    records.emplace_back(Json::Object{
        {"kind", Json(image.kind == Image::Kind::kUrl ? "url" : "data_url")},
        {"detail", Json(kDetails[static_cast<int>(image.detail)])},
        {"sha256_of_source", Json(Sha256Hex(image.source.data(), image.source.size(), 16))}});
  }
  return Json(std::move(records));
}

Json MessageRecord(const Message& message, const std::string& placeholder) {
  static constexpr const char* kRoles[] = {"system", "user", "assistant", "tool", "latest_reminder"};
  Json::Object record = {{"role", Json(kRoles[static_cast<int>(message.role)])},
                         {"content", Json(WithPlaceholders(message.content, placeholder))}};
  if (message.reasoning) record.emplace_back("reasoning_content", Json(*message.reasoning));
  if (!message.tool_calls.empty()) {
    Json::Array calls;
    for (const ToolCall& call : message.tool_calls) {
      calls.emplace_back(Json::Object{
          {"id", Json(call.id)}, {"name", Json(call.name)}, {"arguments", Json(call.arguments)}});
    }
    record.emplace_back("tool_calls", Json(std::move(calls)));
  }
  if (message.role == Role::kTool) record.emplace_back("tool_call_id", Json(message.tool_call_id));
  if (message.prefix) record.emplace_back("prefix", Json(true));
  if (!message.content.images.empty()) record.emplace_back("images", ImageRecords(message.content.images));
  if (!message.tools.empty()) record.emplace_back("tools", ToolRecords(message.tools));
  return Json(std::move(record));
}

Json ConversationRecord(const Conversation& conversation, const std::string& placeholder) {
  static constexpr const char* kChoices[] = {"auto", "none", "required"};
  static constexpr const char* kEfforts[] = {"low", "high", "xhigh", "max"};
  static constexpr const char* kFormats[] = {"text", "json_object", "json_schema", "regex"};
  Json::Object record = {
      {"thinking", Json(conversation.thinking)},
      {"effort", conversation.effort ? Json(kEfforts[static_cast<int>(*conversation.effort)]) : Json()},
      {"tool_choice", Json(kChoices[static_cast<int>(conversation.tool_choice)])},
      {"response_format", Json(kFormats[static_cast<int>(conversation.format.kind)])}};
  if (conversation.format.kind == FormatKind::kJsonSchema) {
    record.emplace_back("response_schema", conversation.format.schema);
  }
  if (conversation.format.kind == FormatKind::kRegex) {
    record.emplace_back("response_regex", Json(conversation.format.regex));
  }
  record.emplace_back("tools", ToolRecords(conversation.tools));
  Json::Array messages;
  for (const Message& message : conversation.messages) messages.push_back(MessageRecord(message, placeholder));
  record.emplace_back("messages", Json(std::move(messages)));
  return Json(std::move(record));
}

std::vector<ToolDefinition> ReadTools(const Json& list) {
  std::vector<ToolDefinition> tools;
  if (!list.IsArray()) return tools;
  for (const Json& item : list.Items()) {
    ToolDefinition tool;
    tool.name = StringAt(item, "name");
    if (At(item, "description").IsString()) tool.description = StringAt(item, "description");
    tool.parameters = At(item, "parameters");
    const Json& deferred = At(item, "defer_loading");
    tool.deferred = deferred.IsBool() && deferred.AsBool();
    tools.push_back(std::move(tool));
  }
  return tools;
}

Message ReadMessage(const Json& record, const std::string& placeholder) {
  const std::string role = StringAt(record, "role");
  Message message(role == "system"      ? Role::kSystem
                  : role == "user"      ? Role::kUser
                  : role == "assistant" ? Role::kAssistant
                  : role == "tool"      ? Role::kTool
                                        : Role::kLatestReminder);
  std::string text = StringAt(record, "content");
  const Json& images = At(record, "images");
  for (size_t i = 0; images.IsArray() && i < images.Items().size(); ++i) {
    const size_t at = text.find(placeholder);
    if (at == std::string::npos) break;
    message.content.text += text.substr(0, at);
    message.content.images.push_back({.offset = message.content.text.size(), .source = "http://x", .path = ""});
    text.erase(0, at + placeholder.size());
  }
  message.content.text += text;
  if (At(record, "reasoning_content").IsString()) message.reasoning = StringAt(record, "reasoning_content");
  message.tool_call_id = StringAt(record, "tool_call_id");
  message.prefix = At(record, "prefix").IsBool() && At(record, "prefix").AsBool();
  message.tools = ReadTools(At(record, "tools"));
  if (const Json& calls = At(record, "tool_calls"); calls.IsArray()) {
    for (const Json& call : calls.Items()) {
      message.tool_calls.push_back({StringAt(call, "id"), StringAt(call, "name"), StringAt(call, "arguments")});
    }
  }
  return message;
}

Conversation ReadConversation(const Json& record, const std::string& placeholder) {
  Conversation conversation;
  conversation.thinking = At(record, "thinking").AsBool();
  const std::string effort = StringAt(record, "effort");
  if (effort == "low") conversation.effort = Effort::kLow;
  if (effort == "high") conversation.effort = Effort::kHigh;
  if (effort == "xhigh") conversation.effort = Effort::kXhigh;
  if (effort == "max") conversation.effort = Effort::kMax;
  const std::string choice = StringAt(record, "tool_choice");
  if (choice == "none") conversation.tool_choice = ToolChoice::kNone;
  if (choice == "required") conversation.tool_choice = ToolChoice::kRequired;
  const std::string format = StringAt(record, "response_format");
  if (format == "json_object") conversation.format.kind = FormatKind::kJsonObject;
  if (format == "json_schema") conversation.format.kind = FormatKind::kJsonSchema;
  if (format == "regex") conversation.format.kind = FormatKind::kRegex;
  conversation.format.schema = At(record, "response_schema");
  conversation.tools = ReadTools(At(record, "tools"));
  for (const Json& message : At(record, "messages").Items()) {
    conversation.messages.push_back(ReadMessage(message, placeholder));
  }
  return conversation;
}

// Numbers and keys as the other implementation holds them, without what differs by nature: where an image stood.
Json Comparable(const Json& value) {
  if (value.IsNumber()) return Json(Json::Number{WritePromptJson(value, JsonForm::kCompact)});
  if (value.IsArray()) {
    Json::Array items;
    for (const Json& item : value.Items()) items.push_back(Comparable(item));
    return Json(std::move(items));
  }
  if (!value.IsObject()) return value;
  Json::Object members;
  const bool is_image = value.Find("sha256_of_source") != nullptr;
  for (const auto& [key, member] : value.Members()) {
    if (is_image && key == "path") continue;
    if (key == "tool_call_id" && member.IsString() && member.AsString().empty()) continue;
    members.emplace_back(key, Comparable(member));
  }
  return Json(std::move(members));
}

// Key order matters in schemas (it reaches the prompt), not in the records around them.
bool SameRecord(const Json& a, const Json& b) {
  if (!a.IsObject() || !b.IsObject()) return a == b;
  if (a.Members().size() != b.Members().size()) return false;
  for (const auto& [key, value] : a.Members()) {
    const Json* const other = b.Find(key);
    if (other == nullptr) return false;
    const bool list = value.IsArray() && other->IsArray() && (key == "messages" || key == "tools" || key == "images" ||
                                                              key == "tool_calls");
    if (list) {
      if (value.Items().size() != other->Items().size()) return false;
      for (size_t i = 0; i < value.Items().size(); ++i) {
        if (!SameRecord(value.Items()[i], other->Items()[i])) return false;
      }
    } else if (!(value == *other)) {
      return false;
    }
  }
  return true;
}

class Checker {
 public:
  Checker(const Json& record, Profile profile, const VectorEncoders& encoders)
      : record_(record), encoders_(encoders), options_(OptionsOf(record, profile)) {
    const Json* const token = At(record, "options").Find("image_token");
    placeholder_ = token != nullptr ? token->AsString() : std::string(Spelling(Control::kImage));
    own_placeholder_ = placeholder_ == Spelling(Control::kImage);
  }

  std::vector<std::string> Check() {
    const bool ok = At(record_, "ok").AsBool();
    const std::string protocol = StringAt(record_, "protocol");
    if (protocol == "conversation") {
      request_.version = StringAt(record_, "version") == "V4" ? ModelVersion::kV4 : ModelVersion::kV41;
      request_.conversation = ReadConversation(At(record_, "conversation"), placeholder_);
      CheckPrompt();
      return std::move(differences_);
    }
    const auto request = ParseRequest(protocol == "chat"        ? Protocol::kChat
                                      : protocol == "responses" ? Protocol::kResponses
                                                                : Protocol::kMessages,
                                      StringAt(record_, "body"), options_);
    if (request.ok() != ok) {
      Differ("ok", ok ? "accepted" : "refused: " + StringAt(At(record_, "error"), "message"),
             request.ok() ? "accepted" : "refused: " + request.status().message());
    } else if (!ok) {
      CheckMessage(request.status().message());
    } else {
      request_ = *request;
      CheckRequest();
      CheckPrompt();
    }
    return std::move(differences_);
  }

 private:
  void Differ(std::string_view field, const std::string& expected, const std::string& actual) {
    differences_.push_back(fmt::format("{}: expected {}\n    got {}", field, Short(expected), Short(actual)));
  }
  void Compare(std::string_view field, const Json& expected, const Json& actual) {
    const Json a = Comparable(expected);
    const Json b = Comparable(actual);
    if (!SameRecord(a, b)) Differ(field, WriteJson(a), WriteJson(b));
  }

  // The records round to 6 digits.
  void Near(std::string_view field, const Json& expected, double actual) {
    if (std::fabs(expected.ToDouble().value_or(-1) - actual) > 1e-6) {
      Differ(field, WriteJson(expected), std::to_string(actual));
    }
  }

  // A refusal says where: a JSON pointer, or that the body as a whole is no JSON, no object, or over a limit.
  void CheckMessage(const std::string& message) {
    const bool names_field = message.starts_with('/') && message.find(": ") != std::string::npos;
    if (!names_field && !message.starts_with("not valid JSON") && !message.starts_with("JSON ") &&
        !message.starts_with("the request must be")) {
      Differ("error", "a message that names the field", message);
    }
  }

  void CheckRequest() {
    Compare("version", At(record_, "version"), Json(request_.version == ModelVersion::kV4 ? "V4" : "V4.1"));
    Compare("conversation", At(record_, "conversation"), ConversationRecord(request_.conversation, placeholder_));
    CheckSampling();
    CheckParsing();
    Compare("stream", At(record_, "stream"), Json(request_.answer.stream));
    CheckResponses();
    CheckMaxTokens();
  }

  void CheckSampling() {
    static constexpr const char* kKinds[] = {"json", "regex", "tool_call", "tool_call_required"};
    const SamplingOptions& s = request_.sampling;
    const Json& expected = At(record_, "inference");
    const auto integer = [](auto value) { return value ? Json::Integer(static_cast<int64_t>(*value)) : Json(); };
    Compare("max_tokens", At(expected, "max_tokens"), integer(s.max_tokens));
    Compare("seed", At(expected, "seed"), integer(s.seed));
    Compare("top_logprobs", At(expected, "top_logprobs"), integer(s.top_logprobs));
    Compare("logprobs", At(expected, "logprobs"), Json(s.logprobs));
    Near("temperature", At(expected, "temperature"), s.temperature);
    Near("top_p", At(expected, "top_p"), s.top_p);
    Json constraint;
    if (s.constraint) {
      constraint = Json(Json::Object{{"kind", Json(kKinds[static_cast<int>(s.constraint->kind)])},
                                     {"schema", Json(s.constraint->schema)}});
    }
    Compare("constraint", At(expected, "constraint"), constraint);
    // What only the default profile sets has no place in these vectors.
    SamplingOptions plain = s;
    plain.num_choices = 1;
    plain.frequency_penalty = plain.presence_penalty = 0;
    plain.top_k.reset();
    plain.min_p.reset();
    plain.min_tokens.reset();
    plain.logit_bias.clear();
    plain.thinking_budget_tokens.reset();
    if (!(plain == s)) Differ("sampling", "nothing beyond the vector's fields", "more");
  }

  void CheckParsing() {
    const ParseOptions& p = request_.parsing;
    static constexpr const char* kStages[] = {"", "ReasoningStart", "ReasoningContinuation", "ContentContinuation"};
    Json::Array stops;
    for (const std::string& stop : p.stop_sequences) stops.emplace_back(stop);
    const int stage = static_cast<int>(p.stage);
    Compare("parsing", At(record_, "parsing"),
            Json(Json::Object{{"parse_tool_calls", Json(p.parse_tool_calls)},
                              {"starts_in_tool_calls", Json(p.starts_in_tool_calls)},
                              {"parse_json_output", Json(p.parse_json_output)},
                              {"thinking_initial_stage", stage == 0 ? Json() : Json(kStages[stage])},
                              {"stop_sequences", Json(std::move(stops))}}));
    if (p.calls_required || p.one_call_only) Differ("parsing", "nothing beyond the vector's fields", "more");
  }

  void CheckResponses() {
    const ResponsesEcho& echo = request_.answer.echo;
    if (const Json* expected = record_.Find("echo")) {
      Near("echo.temperature", At(*expected, "temperature"), echo.temperature);
      Near("echo.top_p", At(*expected, "top_p"), echo.top_p);
      Compare("echo.instructions", At(*expected, "instructions"), OrNull(echo.instructions));
      Compare("echo.user", At(*expected, "user"), OrNull(echo.user));
      Compare("echo.max_output_tokens", At(*expected, "max_output_tokens"),
              echo.max_output_tokens ? Json::Integer(*echo.max_output_tokens) : Json());
      Compare("echo.top_logprobs", At(*expected, "top_logprobs"), Json::Integer(echo.top_logprobs));
    }
    Json::Object names;
    for (const NamespacedTool& tool : request_.answer.namespace_tools) {
      names.emplace_back(tool.function, Json(Json::Array{Json(tool.namespace_name), Json(tool.local_name)}));
    }
    const Json* const expected = record_.Find("namespace_tool_map");
    if (record_.Find("echo") != nullptr) {
      Compare("namespace_tool_map", expected != nullptr ? *expected : Json(Json::Object()), Json(std::move(names)));
    }
  }

  void CheckMaxTokens() {
    const Json* const cases = record_.Find("resolved_max_tokens");
    if (cases == nullptr) return;
    for (const Json& each : cases->Items()) {
      const auto result = ResolveMaxTokens(request_, *each.Items()[0].ToInt64(), *each.Items()[1].ToInt64());
      const auto expected = each.Items()[2].ToInt64();
      const std::optional<int64_t> actual = result.ok() ? std::optional(*result) : std::nullopt;
      if (expected != actual) {
        Differ("resolved_max_tokens", WriteJson(each), result.ok() ? std::to_string(*result) : "an error");
      }
    }
  }

  void CheckPrompt() {
    const Prompt prompt = RenderConversation(request_.conversation, request_.version);
    if (own_placeholder_) {
      Compare("prompt", At(record_, "prompt"), Json(prompt.Text()));
      Json::Array ranges;
      for (const auto& [begin, end] : prompt.ControlRanges()) {
        ranges.emplace_back(Json::Array{Json::Integer(static_cast<int64_t>(begin)),
                                        Json::Integer(static_cast<int64_t>(end))});
      }
      Compare("special", At(record_, "special"), Json(std::move(ranges)));
    }
    Compare("images", At(record_, "images"), Json::Integer(static_cast<int64_t>(prompt.images().size())));
    CheckIds("tokens", encoders_.published, prompt);
    CheckIds("tiny_tokens", encoders_.bundled, prompt);
  }

  void CheckIds(std::string_view field, const std::shared_ptr<PromptEncoder>& encoder, const Prompt& prompt) {
    const Json* const expected = record_.Find(field);
    if (encoder == nullptr || expected == nullptr || expected->Find("error") != nullptr) return;
    const auto ids = encoder->Encode(prompt);
    if (!ids.ok()) return Differ(field, "ids", ids.status().message());
    // Little-endian words, as this machine has them.
    const std::string digest = Sha256Hex(ids->data(), ids->size() * sizeof(TokenId), 64);
    if (digest != StringAt(*expected, "sha256") || static_cast<int64_t>(ids->size()) != At(*expected, "n").ToInt64()) {
      Differ(field, WriteJson(*expected), fmt::format("{} ids: {}", ids->size(), fmt::join(*ids, ",")));
    }
  }

  const Json& record_;
  const VectorEncoders& encoders_;
  RecipeOptions options_;
  std::string placeholder_;
  bool own_placeholder_ = true;
  Request request_;
  std::vector<std::string> differences_;
};

}  // namespace

Result<std::vector<std::string>> ReadLines(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return Error(Code::kNotFound, "{}: cannot be opened", path);
  std::string data((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (path.ends_with(".xz")) {
    DI_ASSIGN_OR_RETURN(data, Decompress(data));
  }
  std::vector<std::string> lines;
  std::istringstream stream(data);
  for (std::string line; std::getline(stream, line);) lines.push_back(std::move(line));
  return lines;
}

std::vector<std::string> CheckRequestVector(const Json& record, Profile profile, const VectorEncoders& encoders) {
  return Checker(record, profile, encoders).Check();
}

std::vector<std::string> CheckAll(const std::vector<std::string>& lines,
                                  const std::function<std::vector<std::string>(const Json&)>& check) {
  const size_t num_threads = std::max(1U, std::thread::hardware_concurrency());
  std::vector<std::vector<std::string>> found(lines.size());
  std::vector<std::thread> threads;
  for (size_t t = 0; t < num_threads; ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = t; i < lines.size(); i += num_threads) {
        const auto record = ParseJson(lines[i]);
        if (!record.ok()) {
          found[i] = {record.status().message()};
          continue;
        }
        const std::string id = StringAt(*record, "id");
        for (const std::string& difference : check(*record)) found[i].push_back(id + ": " + difference);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<std::string> all;
  for (std::vector<std::string>& each : found) std::move(each.begin(), each.end(), std::back_inserter(all));
  return all;
}

}  // namespace deepinfer::recipe
