// SPDX-License-Identifier: Apache-2.0
#include "stream_vectors.h"

#include <lzma.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "core/check.h"

namespace deepinfer::recipe {
namespace {

constexpr std::pair<const char*, Protocol> kProtocols[] = {
    {"chat", Protocol::kChat}, {"responses", Protocol::kResponses}, {"messages", Protocol::kMessages}};

std::string ReadXz(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string packed((std::istreambuf_iterator<char>(file)), {});
  lzma_stream stream = LZMA_STREAM_INIT;
  DI_CHECK(lzma_stream_decoder(&stream, UINT64_MAX, 0) == LZMA_OK);
  stream.next_in = reinterpret_cast<const uint8_t*>(packed.data());
  stream.avail_in = packed.size();
  std::string text;
  std::string buffer(1 << 20, '\0');
  lzma_ret status = LZMA_OK;
  while (status == LZMA_OK) {
    stream.next_out = reinterpret_cast<uint8_t*>(buffer.data());
    stream.avail_out = buffer.size();
    status = lzma_code(&stream, LZMA_FINISH);
    text.append(buffer, 0, buffer.size() - stream.avail_out);
  }
  lzma_end(&stream);
  DI_CHECK(status == LZMA_STREAM_END);
  return text;
}

Json Parse(std::string_view text) {
  auto json = ParseJson(text);
  DI_CHECK(json.ok());
  return *std::move(json);
}

bool Flag(const Json& object, std::string_view key) {
  const Json* value = object.Find(key);
  return value != nullptr && value->IsBool() && value->AsBool();
}

ParseOptions ParsingOf(const Json& json) {
  ParseOptions options;
  options.parse_tool_calls = Flag(json, "parse_tool_calls");
  options.starts_in_tool_calls = Flag(json, "starts_in_tool_calls");
  options.parse_json_output = Flag(json, "parse_json_output");
  if (const Json& stage = *json.Find("thinking_initial_stage"); stage.IsString()) {
    options.stage = stage.AsString() == "ReasoningStart"          ? ThinkingStage::kReasoningStart
                    : stage.AsString() == "ReasoningContinuation" ? ThinkingStage::kReasoningContinuation
                                                                  : ThinkingStage::kContentContinuation;
  }
  for (const Json& stop : json.Find("stop_sequences")->Items()) options.stop_sequences.push_back(stop.AsString());
  return options;
}

StreamChunk ChunkOf(const Json& json) {
  StreamChunk chunk;
  const Json::Array& fields = json.Items();
  chunk.ids = fields[0].AsString() == "tokens";
  if (!chunk.ids) {
    chunk.text = fields[1].AsString();
    chunk.token_count = *fields[2].ToInt64();
    return chunk;
  }
  for (const Json& id : fields[1].Items()) chunk.tokens.push_back(static_cast<TokenId>(*id.ToInt64()));
  if (fields.size() < 3) return chunk;
  for (const Json& token : fields[2].Items()) {
    chunk.logprobs.push_back(static_cast<float>(*token.Items()[0].ToDouble()));
    auto& top = chunk.top.emplace_back();
    for (const Json& candidate : token.Items()[1].Items()) {
      top.push_back({static_cast<TokenId>(*candidate.Items()[0].ToInt64()),
                     static_cast<float>(*candidate.Items()[1].ToDouble())});
    }
  }
  return chunk;
}

StreamVector VectorOf(const Json& record) {
  StreamVector vector;
  vector.id = record.Find("id")->AsString();
  vector.name = record.Find("case")->AsString();
  vector.chunking = record.Find("chunking")->AsString();
  if (record.Find("tokenizer")->IsString()) vector.tokenizer = record.Find("tokenizer")->AsString();
  for (const Json& chunk : record.Find("chunks")->Items()) vector.chunks.push_back(ChunkOf(chunk));
  if (const Json& finish = *record.Find("finish"); finish.IsString()) {
    vector.finish = finish.AsString() == "Stop"     ? BackendFinish::kStop
                    : finish.AsString() == "Length" ? BackendFinish::kLength
                                                    : BackendFinish::kContentFilter;
  }
  vector.parsing = ParsingOf(*record.Find("parsing"));
  for (const auto& [name, protocol] : kProtocols) {
    vector.requests[protocol] = Parse(record.Find("requests")->Find(name)->AsString());
    vector.events[protocol] = *record.Find("expect")->Find(name)->Find("events");
    vector.finals[protocol] = *record.Find("expect")->Find(name)->Find("final");
  }
  return vector;
}

Json OrNull(const Json& object, std::string_view key) {
  const Json* value = object.Find(key);
  return value == nullptr ? Json() : *value;
}

// A tool as a Responses answer reports it.
Json EchoedTool(const Json& tool) {
  const std::string type = tool.Find("type")->AsString();
  if (type == "namespace") {
    Json copy = tool;
    for (Json& inner : copy.Find("tools")->Items()) inner = EchoedTool(inner);
    return copy;
  }
  if (type != "function") return tool;
  Json::Object members;
  members.emplace_back("type", Json("function"));
  for (const char* key : {"name", "description", "parameters", "strict"}) members.emplace_back(key, OrNull(tool, key));
  return Json(std::move(members));
}

// call_00_ and 24 letters and digits -> call_00_*
void HideCallIds(std::string* text) {
  size_t at = 0;
  while ((at = text->find("call_", at)) != std::string::npos) {
    const size_t random = at + 8;
    size_t end = random;
    while (end < text->size() && std::isalnum(static_cast<unsigned char>((*text)[end]))) ++end;
    if (random < text->size() && (*text)[random - 1] == '_' && end - random == 24) text->replace(random, 24, "*");
    at += 5;
  }
}

// The text of a delta event that may be joined to one of the same `key`.
struct Delta {
  std::string key;
  std::string* text = nullptr;
  Json::Array* logprobs = nullptr;
};

std::optional<Delta> ChatDelta(Json* event) {
  if (event->Find("choices") == nullptr || event->Find("choices")->Items().empty()) return std::nullopt;
  Json& choice = event->Find("choices")->Items()[0];
  Json& fields = *choice.Find("delta");
  if (!choice.Find("finish_reason")->IsNull() || fields.Find("role") != nullptr) return std::nullopt;
  Delta delta;
  if (Json* calls = fields.Find("tool_calls"); calls != nullptr) {
    Json& call = calls->Items()[0];
    if (call.Find("id") != nullptr) return std::nullopt;
    delta.key = "call " + call.Find("index")->Literal();
    delta.text = const_cast<std::string*>(&call.Find("function")->Find("arguments")->AsString());
    return delta;
  }
  for (const char* key : {"content", "reasoning_content"}) {
    Json* text = fields.Find(key);
    if (text == nullptr || !text->IsString()) continue;
    delta.key = key;
    delta.text = const_cast<std::string*>(&text->AsString());
    if (Json* logprobs = choice.Find("logprobs")->Find(key); logprobs != nullptr) delta.logprobs = &logprobs->Items();
    return delta;
  }
  return std::nullopt;
}

std::optional<Delta> NamedDelta(Json* event, Protocol protocol) {
  const std::string type = event->Find("type")->AsString();
  Delta delta;
  if (protocol == Protocol::kMessages) {
    if (type != "content_block_delta") return std::nullopt;
    Json::Object& members = event->Find("delta")->Members();
    delta.key = members[0].second.AsString() + event->Find("index")->Literal();
    delta.text = const_cast<std::string*>(&members[1].second.AsString());
    return delta;
  }
  if (!type.ends_with(".delta")) return std::nullopt;
  delta.key = type + event->Find("item_id")->AsString();
  delta.text = const_cast<std::string*>(&event->Find("delta")->AsString());
  if (Json* logprobs = event->Find("logprobs"); logprobs != nullptr) delta.logprobs = &logprobs->Items();
  return delta;
}

std::optional<Delta> DeltaOf(Json* event, Protocol protocol) {
  return protocol == Protocol::kChat ? ChatDelta(event) : NamedDelta(event, protocol);
}

}  // namespace

const std::vector<StreamVector>& StreamVectors() {
  static const auto* vectors = [] {
    auto* all = new std::vector<StreamVector>();
    const std::string text = ReadXz(DI_SOURCE_DIR "/tests/golden/recipe/streams.jsonl.xz");
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = text.find('\n', begin);
      all->push_back(VectorOf(Parse(std::string_view(text).substr(begin, end - begin))));
      begin = end + 1;
    }
    return all;
  }();
  return *vectors;
}

const TestTokenizer* FindTokenizer(const std::string& name) {
  static auto* loaded = new std::map<std::string, TestTokenizer>();
  if (name.empty()) return nullptr;
  if (const auto it = loaded->find(name); it != loaded->end()) return it->second.tokenizer ? &it->second : nullptr;
  TestTokenizer& entry = (*loaded)[name];
  const std::string path = name == "v41" ? DI_BINARY_DIR "/data/v41/tokenizer.json"
                                         : DI_SOURCE_DIR "/models/deepseek-v41-tiny/tokenizer.json";
  if (!std::filesystem::exists(path)) return nullptr;
  auto tokenizer = Tokenizer::Load(path);
  DI_CHECK(tokenizer.ok());
  entry.tokenizer = *tokenizer;
  auto vocabulary = OutputVocabulary::Create(*entry.tokenizer);
  DI_CHECK(vocabulary.ok());
  entry.vocabulary = std::make_unique<OutputVocabulary>(*std::move(vocabulary));
  return &entry;
}

AnswerOptions AnswerOptionsOf(Protocol protocol, const Json& request) {
  AnswerOptions options;
  options.protocol = protocol;
  options.model = "mini";
  options.stream = true;
  if (const Json* stream = request.Find("stream_options"); stream != nullptr) {
    options.include_usage = Flag(*stream, "include_usage");
  }
  if (protocol != Protocol::kResponses) return options;
  ResponsesEcho& echo = options.echo;
  echo.reasoning = Json(Json::Object{{"effort", *request.Find("reasoning")->Find("effort")}, {"summary", Json()}});
  const Json* text = request.Find("text");
  echo.text = Json(Json::Object{
      {"format", text == nullptr ? Json(Json::Object{{"type", Json("text")}}) : *text->Find("format")},
      {"verbosity", Json()}});
  const Json choice = OrNull(request, "tool_choice");
  echo.tool_choice = choice.IsNull() ? Json("auto") : choice;
  if (const Json* top = request.Find("top_logprobs"); top != nullptr) {
    echo.top_logprobs = static_cast<int>(*top->ToInt64());
  }
  Json::Array tools;
  if (const Json* listed = request.Find("tools"); listed != nullptr) {
    for (const Json& tool : listed->Items()) {
      tools.push_back(EchoedTool(tool));
      const std::string type = tool.Find("type")->AsString();
      if (type == "custom") options.custom_tools.push_back(tool.Find("name")->AsString());
      if (type == "tool_search") options.client_tool_search = true;
      if (type != "namespace") continue;
      const std::string space = tool.Find("name")->AsString();
      for (const Json& inner : tool.Find("tools")->Items()) {
        const std::string name = inner.Find("name")->AsString();
        options.namespace_tools.push_back({space + "::" + name, space, name});
      }
    }
  }
  echo.tools = Json(std::move(tools));
  return options;
}

Status PushChunk(const StreamChunk& chunk, OutputParser* parser, OutputEvents* events) {
  events->Clear();
  if (!chunk.ids) return parser->PushText(chunk.text, chunk.token_count, events);
  std::vector<TokenScore> scores;
  for (size_t i = 0; i < chunk.logprobs.size(); ++i) {
    scores.push_back({.logprob = chunk.logprobs[i], .top = chunk.top[i]});
  }
  return parser->PushTokens(chunk.tokens, scores, events);
}

StreamResult RunStream(const StreamVector& vector, Protocol protocol, Profile profile,
                       const std::vector<StreamChunk>& chunks) {
  const TestTokenizer* tokenizer = FindTokenizer(vector.tokenizer);
  AnswerContext context;
  context.id = "r1";
  context.model = "mini";
  context.system_fingerprint = "fp";
  context.prompt_tokens = 11;
  context.cached_tokens = 4;
  if (tokenizer != nullptr) {
    context.vocabulary = tokenizer->vocabulary.get();
    context.count_tokens = [&](std::string_view text) {
      const auto ids = tokenizer->tokenizer->Encode(text);
      DI_CHECK(ids.ok());
      return static_cast<int64_t>(ids->size());
    };
  }
  auto parser = OutputParser::Create(vector.parsing, profile, context.vocabulary);
  DI_CHECK(parser.ok());
  const auto writer = ResponseWriter::Create(std::move(context), AnswerOptionsOf(protocol, vector.requests.at(protocol)),
                                             vector.parsing, profile);
  std::vector<SseEvent> sse;
  OutputEvents events;
  writer->Begin(&sse);
  for (const StreamChunk& chunk : chunks) {
    DI_CHECK(PushChunk(chunk, parser->get(), &events).ok());
    writer->Add(0, events, &sse);
  }
  events.Clear();
  DI_CHECK((*parser)->Finish(vector.finish, &events).ok());
  writer->Add(0, events, &sse);
  writer->EndChoice(0, (*parser)->usage(), &sse);
  std::string body = writer->Body();
  HideCallIds(&body);
  return {.events = JoinDeltas(sse, protocol), .body = Parse(body)};
}

Json JoinDeltas(const std::vector<SseEvent>& sse, Protocol protocol) {
  Json::Array events;
  std::string last_key;
  for (const SseEvent& raw : sse) {
    if (raw.data == "[DONE]" || raw.data.empty()) continue;
    std::string data = raw.data;
    HideCallIds(&data);
    Json event = Parse(data);
    std::erase_if(event.Members(), [](const auto& member) { return member.first == "sequence_number"; });
    const auto delta = DeltaOf(&event, protocol);
    if (delta && delta->key == last_key) {
      const auto before = DeltaOf(&events.back().Items()[1], protocol);
      *before->text += *delta->text;
      if (delta->logprobs != nullptr && before->logprobs != nullptr) {
        before->logprobs->insert(before->logprobs->end(), delta->logprobs->begin(), delta->logprobs->end());
      }
      continue;
    }
    last_key = delta ? delta->key : "";
    events.push_back(Json(Json::Array{raw.event.empty() ? Json() : Json(raw.event), std::move(event)}));
  }
  return Json(std::move(events));
}

std::vector<StreamChunk> Rechunk(const std::vector<StreamChunk>& chunks, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<StreamChunk> result;
  const size_t longest = std::vector<size_t>{1, 2, 5, 17, 60}[random() % 5];
  for (size_t first = 0; first < chunks.size();) {
    StreamChunk joined;
    joined.ids = chunks[first].ids;
    for (; first < chunks.size() && chunks[first].ids == joined.ids; ++first) {
      joined.text += chunks[first].text;
      joined.tokens.insert(joined.tokens.end(), chunks[first].tokens.begin(), chunks[first].tokens.end());
    }
    const size_t size = joined.ids ? joined.tokens.size() : joined.text.size();
    for (size_t begin = 0; begin < size;) {
      const size_t length = std::min(size - begin, 1 + random() % longest);
      StreamChunk& piece = result.emplace_back();
      piece.ids = joined.ids;
      const auto at = static_cast<ptrdiff_t>(begin);
      if (joined.ids) {
        piece.tokens.assign(joined.tokens.begin() + at, joined.tokens.begin() + at + static_cast<ptrdiff_t>(length));
      } else {
        piece.text = joined.text.substr(begin, length);
      }
      begin += length;
    }
  }
  return result;
}

bool SameJson(const Json& a, const Json& b, std::string* where) {
  if (a.IsNumber() && b.IsNumber()) return *a.ToDouble() == *b.ToDouble();
  if (a.IsArray() && b.IsArray()) {
    for (size_t i = 0; i < std::max(a.Items().size(), b.Items().size()); ++i) {
      const std::string here = *where;
      *where += "/" + std::to_string(i);
      if (i >= a.Items().size() || i >= b.Items().size() || !SameJson(a.Items()[i], b.Items()[i], where)) return false;
      *where = here;
    }
    return true;
  }
  if (a.IsObject() && b.IsObject()) {
    for (size_t i = 0; i < std::max(a.Members().size(), b.Members().size()); ++i) {
      const std::string here = *where;
      *where += "/" + (i < a.Members().size() ? a.Members()[i] : b.Members()[i]).first;
      if (i >= a.Members().size() || i >= b.Members().size() || a.Members()[i].first != b.Members()[i].first ||
          !SameJson(a.Members()[i].second, b.Members()[i].second, where)) {
        return false;
      }
      *where = here;
    }
    return true;
  }
  return a == b;
}

}  // namespace deepinfer::recipe
