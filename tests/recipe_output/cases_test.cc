// SPDX-License-Identifier: Apache-2.0
// Bugs that other engines had, one test each, named after their numbers in the project's list (C: chat surface, D:
// responses and messages): the part of each that parser and writers decide. Each output is parsed as text, cut in two
// at every place, and as ids of the bundled tokenizer, one at a time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "stream_vectors.h"

namespace deepinfer::recipe {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

ParseOptions Tools() {
  ParseOptions options;
  options.parse_tool_calls = true;
  return options;
}

ParseOptions Thinking() {
  ParseOptions options = Tools();
  options.stage = ThinkingStage::kReasoningStart;
  return options;
}

std::string Block(const std::string& calls) { return "\n\n<｜DSML｜ calls>\n" + calls + "\n</｜DSML｜ calls>"; }
std::string Invoke(const std::string& name, const std::string& parameters) {
  return "<｜DSML｜ invoke name=\"" + name + "\">\n" + parameters + "\n</｜DSML｜ invoke>";
}
std::string Parameter(const std::string& name, bool string, const std::string& value) {
  return "<｜DSML｜ parameter name=\"" + name + "\" string=\"" + (string ? "true" : "false") + "\">" + value +
         "</｜DSML｜ parameter>";
}
std::string OneCall(const std::string& parameters) { return Block(Invoke("run", parameters)); }

void TakeAll(const OutputEvents& events, Answer* answer) {
  for (const OutputEvent& event : events.events()) answer->Take(events, event, "");
}

std::unique_ptr<OutputParser> NewParser(const ParseOptions& options) {
  auto parser = OutputParser::Create(options, Profile::kDefault, FindTokenizer("tiny")->vocabulary.get());
  EXPECT_TRUE(parser.ok());
  return *std::move(parser);
}

Answer Finished(OutputParser* parser, BackendFinish finish, Answer answer) {
  OutputEvents events;
  EXPECT_TRUE(parser->Finish(finish, &events).ok());
  TakeAll(events, &answer);
  answer.usage = parser->usage();
  return answer;
}

Answer FromText(const ParseOptions& options, std::string_view text, size_t cut, BackendFinish finish) {
  const auto parser = NewParser(options);
  Answer answer;
  OutputEvents events;
  EXPECT_TRUE(parser->PushText(text.substr(0, cut), 1, &events).ok());
  EXPECT_TRUE(parser->PushText(text.substr(cut), 1, &events).ok());
  TakeAll(events, &answer);
  return Finished(parser.get(), finish, std::move(answer));
}

std::vector<TokenId> Ids(std::string_view text) {
  const auto ids = FindTokenizer("tiny")->tokenizer->Encode(text);
  EXPECT_TRUE(ids.ok());
  return *ids;
}

Answer FromIds(const ParseOptions& options, const std::vector<TokenId>& ids, BackendFinish finish) {
  const auto parser = NewParser(options);
  Answer answer;
  OutputEvents events;
  for (const TokenId id : ids) EXPECT_TRUE(parser->PushTokens({&id, 1}, {}, &events).ok());
  TakeAll(events, &answer);
  return Finished(parser.get(), finish, std::move(answer));
}

std::string Describe(const Answer& answer) {
  std::string text;
  for (const AnswerPart& part : answer.parts) {
    text += fmt::format("{} {} [{}]\n", static_cast<int>(part.kind), part.name, part.text);
  }
  return text + fmt::format("{} {}", static_cast<int>(answer.finish), answer.malformed.size());
}

// The answer, and a failure where a cut or the ids give another.
Answer Parse(const ParseOptions& options, const std::string& text, BackendFinish finish = BackendFinish::kStop) {
  const Answer answer = FromIds(options, Ids(text), finish);
  const size_t step = 1 + text.size() / 400;
  for (size_t cut = 0; cut <= text.size(); cut += step) {
    EXPECT_EQ(Describe(FromText(options, text, cut, finish)), Describe(answer)) << "cut at " << cut;
    if (testing::Test::HasFailure()) break;
  }
  return answer;
}

std::string Content(const Answer& answer) { return answer.Joined(AnswerPart::Kind::kText); }
std::string Reasoning(const Answer& answer) { return answer.Joined(AnswerPart::Kind::kReasoning); }
std::vector<std::string> Calls(const Answer& answer) {
  std::vector<std::string> calls;
  for (const AnswerPart& part : answer.parts) {
    if (part.kind == AnswerPart::Kind::kCall) calls.push_back(part.name + part.text);
  }
  return calls;
}

std::string JsonString(const std::string& text) {
  std::string json;
  AppendJsonString(text, false, &json);
  return json;
}

// A writer with fixed ids, and the events that it gave.
struct Stream {
  explicit Stream(Protocol protocol, ParseOptions parsing = {}, int num_choices = 1, bool include_usage = false) {
    AnswerOptions options;
    options.protocol = protocol;
    options.include_usage = include_usage;
    AnswerContext context;
    context.id = "r1";
    context.model = "m";
    context.prompt_tokens = 11;
    context.cached_tokens = 4;
    context.num_choices = num_choices;
    context.vocabulary = FindTokenizer("tiny")->vocabulary.get();
    writer = ResponseWriter::Create(std::move(context), options, parsing, Profile::kDefault);
    for (int i = 0; i < num_choices; ++i) parsers.push_back(NewParser(parsing));
    writer->Begin(&sse);
  }
  void Push(const std::vector<TokenId>& ids, int choice = 0) {
    OutputEvents events;
    EXPECT_TRUE(parsers[static_cast<size_t>(choice)]->PushTokens(ids, {}, &events).ok());
    writer->Add(choice, events, &sse);
  }
  void End(BackendFinish finish, int choice = 0) {
    OutputEvents events;
    auto& parser = *parsers[static_cast<size_t>(choice)];
    EXPECT_TRUE(parser.Finish(finish, &events).ok());
    writer->Add(choice, events, &sse);
    writer->EndChoice(choice, parser.usage(), &sse);
  }
  std::vector<Json> Data() const {
    std::vector<Json> all;
    for (const SseEvent& event : sse) {
      if (event.data == "[DONE]") continue;
      auto json = ParseJson(event.data);
      EXPECT_TRUE(json.ok()) << event.data;
      all.push_back(*json);
    }
    return all;
  }
  Json Body() const { return *ParseJson(writer->Body()); }

  std::unique_ptr<ResponseWriter> writer;
  std::vector<std::unique_ptr<OutputParser>> parsers;
  std::vector<SseEvent> sse;
};

TEST(Case, C02ParameterTextThatLooksLikeMarkup) {
  for (const std::string value : {"ls 2>&1", "a<b", "x>", "</", "<｜", "<｜DSML", "if (a<b && c>d)", "</parameter>", "", "\n",
                                  "\n\n\n", "<｜DSML｜ invoke name=\"x\">", "</｜DSML｜ invoke>"}) {
    const Answer answer = Parse(Tools(), OneCall(Parameter("cmd", true, value)));
    EXPECT_THAT(Calls(answer), ElementsAre("run{\"cmd\": " + JsonString(value) + "}")) << value;
    EXPECT_EQ(answer.finish, FinishReason::kToolCalls);
  }
  std::string big;
  while (big.size() < 100'000) big += "line <b> of text é " + std::to_string(big.size()) + "\n";
  const Answer answer = FromIds(Tools(), Ids(OneCall(Parameter("cmd", true, big))), BackendFinish::kStop);
  EXPECT_THAT(Calls(answer), ElementsAre("run{\"cmd\": " + JsonString(big) + "}"));
}

TEST(Case, C04ParameterTypes) {
  const std::pair<const char*, const char*> raw[] = {
      {"5", "5"},       {"-0.5", "-0.5"}, {"true", "true"}, {"null", "null"}, {"{\"a\":[1,2]}", "{\"a\":[1,2]}"},
      {"[]", "[]"},     {"12345678901234567890", "12345678901234567890"},     {"not json", "\"not json\""},
      {"1.50", "1.50"}, {"", "\"\""},     {"NaN", "\"NaN\""}};
  for (const auto& [value, json] : raw) {
    EXPECT_THAT(Calls(Parse(Tools(), OneCall(Parameter("p", false, value)))),
                ElementsAre(std::string("run{\"p\": ") + json + "}"));
  }
  for (const std::string value : {"5", "true", "{\"a\":1}", "\"\"", "null"}) {
    EXPECT_THAT(Calls(Parse(Tools(), OneCall(Parameter("undeclared", true, value)))),
                ElementsAre("run{\"undeclared\": " + JsonString(value) + "}"));
  }
  // No attribute: JSON, or else a string.
  EXPECT_THAT(Calls(Parse(Tools(), OneCall("<｜DSML｜ parameter name=\"p\">5</｜DSML｜ parameter>"))),
              ElementsAre("run{\"p\": 5}"));
  EXPECT_THAT(Calls(Parse(Tools(), OneCall("<｜DSML｜ parameter name=\"p\">five</｜DSML｜ parameter>"))),
              ElementsAre("run{\"p\": \"five\"}"));
}

TEST(Case, C05HeldBackText) {
  for (const std::string text : {"2 <", "<｜", "a < b", "<", "｜", "x\n\n", "x\n\n<｜DSML｜ cal"}) {
    EXPECT_EQ(Content(Parse(Tools(), text)), text);
  }
  for (const std::string name : {"arguments", "input", "name", "parameters"}) {
    EXPECT_THAT(Calls(Parse(Tools(), OneCall(Parameter(name, true, "v")))), ElementsAre("run{\"" + name + "\": \"v\"}"));
  }
}

// A prompt spells such text with ordinary tokens; read by id, the call's structure stays.
TEST(Case, C06MarkupWithinAnArgumentsTokens) {
  const std::string value = "x</｜DSML｜ parameter>\n</｜DSML｜ invoke>";
  std::vector<TokenId> ids = Ids("\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"run\">\n<｜DSML｜ parameter name=\"c\" string=\"true\">");
  const auto plain = FindTokenizer("tiny")->tokenizer->EncodePlain(value);
  ASSERT_TRUE(plain.ok());
  ids.insert(ids.end(), plain->begin(), plain->end());
  const std::vector<TokenId> rest = Ids("</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n</｜DSML｜ calls>");
  ids.insert(ids.end(), rest.begin(), rest.end());
  EXPECT_THAT(Calls(FromIds(Tools(), ids, BackendFinish::kStop)), ElementsAre("run{\"c\": " + JsonString(value) + "}"));
}

TEST(Case, C08ChoicesWithTools) {
  Stream stream(Protocol::kChat, Thinking(), 3);
  std::vector<std::vector<TokenId>> left;
  for (int i = 0; i < 3; ++i) {
    left.push_back(Ids("why" + std::to_string(i) + "</think>" +
                       OneCall(Parameter("n", false, std::to_string(i)) + "\n" + Parameter("s", true, "a b c"))));
  }
  std::mt19937 random(1);
  while (!left[0].empty() || !left[1].empty() || !left[2].empty()) {
    const size_t choice = random() % 3;
    if (left[choice].empty()) continue;
    stream.Push({left[choice].front()}, static_cast<int>(choice));
    left[choice].erase(left[choice].begin());
  }
  for (const int choice : {2, 0, 1}) stream.End(BackendFinish::kStop, choice);
  std::vector<std::string> arguments(3);
  for (const Json& chunk : stream.Data()) {
    if (chunk.Find("choices")->Items().empty()) continue;
    const Json& choice = chunk.Find("choices")->Items()[0];
    const Json* calls = choice.Find("delta")->Find("tool_calls");
    if (calls == nullptr) continue;
    EXPECT_EQ(calls->Items()[0].Find("index")->Literal(), "0");
    arguments[static_cast<size_t>(*choice.Find("index")->ToInt64())] +=
        calls->Items()[0].Find("function")->Find("arguments")->AsString();
  }
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(arguments[static_cast<size_t>(i)], fmt::format("{{\"n\": {}, \"s\": \"a b c\"}}", i));
  }
  EXPECT_EQ(stream.Body().Find("choices")->Items().size(), 3u);
}

TEST(Case, C09ParallelCalls) {
  const std::string text = Block(Invoke("f", Parameter("a", false, "1")) + "\n" + Invoke("g", "") + "\n" +
                                 Invoke("f", Parameter("a", false, "2")));
  Stream stream(Protocol::kChat, Tools());
  stream.Push(Ids(text));
  stream.End(BackendFinish::kStop);
  std::vector<std::string> heads;
  std::set<std::string> ids;
  for (const Json& chunk : stream.Data()) {
    if (chunk.Find("choices")->Items().empty()) continue;
    const Json* calls = chunk.Find("choices")->Items()[0].Find("delta")->Find("tool_calls");
    if (calls == nullptr || calls->Items()[0].Find("id") == nullptr) continue;
    heads.push_back(calls->Items()[0].Find("index")->Literal() + calls->Items()[0].Find("function")->Find("name")->AsString());
    ids.insert(calls->Items()[0].Find("id")->AsString());
  }
  EXPECT_THAT(heads, ElementsAre("0f", "1g", "2f"));
  EXPECT_EQ(ids.size(), 3u);

  ParseOptions one = Tools();
  one.one_call_only = true;
  EXPECT_THAT(Calls(Parse(one, text)), ElementsAre("f{\"a\": 1}"));
}

TEST(Case, C10FinishReasonAndCallsAgree) {
  EXPECT_EQ(Parse(Tools(), "prose").finish, FinishReason::kStop);
  EXPECT_EQ(Parse(Tools(), OneCall("")).finish, FinishReason::kToolCalls);
  EXPECT_EQ(Parse(Tools(), OneCall(""), BackendFinish::kNone).finish, FinishReason::kToolCalls);
  // Only calls that cannot be used: the list is empty, the text is kept.
  const Answer broken = Parse(Tools(), Block(Invoke("", "")));
  EXPECT_EQ(broken.finish, FinishReason::kStop);
  ASSERT_EQ(broken.malformed.size(), 1u);
  EXPECT_THAT(broken.malformed[0].raw, HasSubstr("invoke name=\"\""));
  // tool_choice none: markup is text.
  EXPECT_EQ(Content(Parse(ParseOptions(), "a" + OneCall(""))), "a" + OneCall(""));
}

TEST(Case, C11BudgetEndsWhileThinking) {
  const std::vector<TokenId> ids = Ids("one two three four five six seven");
  Stream stream(Protocol::kChat, Thinking());
  stream.Push({ids.begin(), ids.begin() + 5});
  stream.End(BackendFinish::kLength);
  const Json body = stream.Body();
  const Json& choice = body.Find("choices")->Items()[0];
  EXPECT_EQ(choice.Find("finish_reason")->AsString(), "length");
  EXPECT_EQ(choice.Find("message")->Find("content")->AsString(), "");
  EXPECT_FALSE(choice.Find("message")->Find("reasoning_content")->AsString().empty());
  EXPECT_EQ(body.Find("usage")->Find("completion_tokens_details")->Find("reasoning_tokens")->Literal(), "5");

  EXPECT_EQ(Content(Parse(Thinking(), "</think>no thought")), "no thought");
  const Answer twice = Parse(Thinking(), "a</think>b</think>c");
  EXPECT_EQ(Reasoning(twice) + "|" + Content(twice), "a|bc");
  const Answer straight = Parse(Thinking(), "plan" + OneCall(""));
  EXPECT_EQ(Reasoning(straight), "plan");
  EXPECT_THAT(Calls(straight), ElementsAre("run{}"));
}

TEST(Case, C15CharactersSplitOverTokens) {
  const Tokenizer& tokenizer = *FindTokenizer("tiny")->tokenizer;
  const auto byte_ids = [&](std::string_view bytes) {
    std::vector<TokenId> ids;
    for (const char c : bytes) {
      for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
        if (tokenizer.TokenBytes(id) == std::string_view(&c, 1)) {
          ids.push_back(id);
          break;
        }
      }
    }
    EXPECT_EQ(ids.size(), bytes.size());
    return ids;
  };
  for (const std::string text : {"😀", "👩‍👩‍👧", "ď", "汉字", "\x80", "a\x80z", "\xF0\x9F", "汉\xE5\xAD", "\xF0\x9F\x98x"}) {
    const std::vector<TokenId> ids = byte_ids(text);
    const Answer answer = FromIds(ParseOptions(), ids, BackendFinish::kStop);
    EXPECT_EQ(Content(answer), tokenizer.Decode(ids)) << text;
    EXPECT_EQ(answer.usage.completion_tokens, static_cast<int64_t>(ids.size()));
  }
}

TEST(Case, C17StopStringsWithLineFeeds) {
  ParseOptions options;
  options.stop_sequences = {"\nUser:"};
  EXPECT_EQ(Content(Parse(options, "a\n\nb\nUs c\nUser: d")), "a\n\nb\nUs c");
  options.stop_sequences = {"\n\n"};
  EXPECT_EQ(Content(Parse(options, "a\n\nb")), "a");

  Stream stream(Protocol::kChat, options);
  for (const TokenId id : Ids("a\n\nb\nUs c")) stream.Push({id});
  stream.End(BackendFinish::kNone);
  size_t empty = 0;
  for (const Json& chunk : stream.Data()) {
    const Json* content = chunk.Find("choices")->Items()[0].Find("delta")->Find("content");
    if (content->AsString().empty()) ++empty;
  }
  EXPECT_EQ(empty, 2u);  // the first and the last
}

TEST(Case, C24LogprobBytes) {
  const std::vector<TokenId> ids = Ids("汉 👩‍👩‍👧 ď x");
  std::vector<TokenCandidate> top = {{ids[0], -0.5F}, {ids[1], -1.5F}, {ids[2], -2.5F}};
  const std::vector<TokenScore> scores(ids.size(), TokenScore{.logprob = -0.5F, .top = top});
  for (const size_t step : {size_t{1}, size_t{3}, ids.size()}) {
    Stream stream(Protocol::kChat);
    for (size_t i = 0; i < ids.size(); i += step) {
      const size_t count = std::min(step, ids.size() - i);
      OutputEvents events;
      ASSERT_TRUE(stream.parsers[0]->PushTokens(std::span(ids).subspan(i, count), std::span(scores).subspan(i, count), &events).ok());
      stream.writer->Add(0, events, &stream.sse);
    }
    stream.End(BackendFinish::kStop);
    std::string bytes;
    size_t streamed = 0;
    const auto collect = [&](const Json& list) {
      for (const Json& entry : list.Items()) {
        for (const Json& byte : entry.Find("bytes")->Items()) bytes += static_cast<char>(*byte.ToInt64());
        EXPECT_EQ(entry.Find("top_logprobs")->Items().size(), 3u);
      }
      return list.Items().size();
    };
    for (const Json& chunk : stream.Data()) {
      const Json* logprobs = chunk.Find("choices")->Items()[0].Find("logprobs");
      if (logprobs->IsObject()) streamed += collect(*logprobs->Find("content"));
    }
    EXPECT_EQ(bytes, "汉 👩‍👩‍👧 ď x");
    EXPECT_EQ(streamed, ids.size());
    const Json body = stream.Body();
    EXPECT_EQ(collect(*body.Find("choices")->Items()[0].Find("logprobs")->Find("content")), ids.size());
    EXPECT_EQ(bytes, "汉 👩‍👩‍👧 ď x汉 👩‍👩‍👧 ď x");
  }
}

TEST(Case, C25UsageInStreams) {
  for (const bool include : {false, true}) {
    Stream stream(Protocol::kChat, Tools(), 2, include);
    stream.Push(Ids("hello there"), 0);
    stream.Push(Ids(OneCall("")), 1);
    stream.End(BackendFinish::kLength, 0);
    stream.End(BackendFinish::kStop, 1);
    EXPECT_EQ(stream.sse.back().data, "[DONE]");
    const std::vector<Json> chunks = stream.Data();
    for (size_t i = 0; i < chunks.size(); ++i) {
      const bool last = i + 1 == chunks.size();
      const Json* usage = chunks[i].Find("usage");
      EXPECT_EQ(usage != nullptr, include);
      EXPECT_EQ(chunks[i].Find("choices")->Items().empty(), include && last);
      if (include) {
        EXPECT_EQ(usage->IsNull(), !last);
      }
    }
    if (include) {
      EXPECT_EQ(*chunks.back().Find("usage"), *stream.Body().Find("usage"));
    }
    EXPECT_EQ(stream.Body().Find("usage")->Find("prompt_tokens")->Literal(), "11");
  }
}

TEST(Case, C32StreamedAgainstWhole) {
  const std::string call = Invoke("run", Parameter("cmd", true, "ls 2>&1") + "\n" + Parameter("n", false, "5"));
  const std::string text = "Let me look." + Block(call);
  for (const BackendFinish finish : {BackendFinish::kStop, BackendFinish::kLength}) {
    for (size_t size = 0; size <= text.size(); ++size) {
      const std::string cut = text.substr(0, size);
      const Answer whole = FromText(Tools(), cut, cut.size(), finish);
      const auto parser = NewParser(Tools());
      Answer streamed;
      for (const char& c : cut) {
        OutputEvents events;
        ASSERT_TRUE(parser->PushText({&c, 1}, 1, &events).ok());
        TakeAll(events, &streamed);
      }
      EXPECT_EQ(Describe(Finished(parser.get(), finish, std::move(streamed))), Describe(whole)) << cut;
      EXPECT_LE(Calls(whole).size(), 1u);
    }
  }
  EXPECT_EQ(Reasoning(Parse(Thinking(), "why</thi")), "why</thi");
}

TEST(Case, D02StopSequenceReport) {
  ParseOptions options;
  options.stop_sequences = {"END", "\n\n"};
  const auto reason = [&](const std::string& text, BackendFinish finish) {
    Stream stream(Protocol::kMessages, options);
    stream.Push(Ids(text));
    stream.End(finish);
    const Json body = stream.Body();
    const std::string whole = WriteJson(*body.Find("stop_reason")) + WriteJson(*body.Find("stop_sequence"));
    const Json delta = *stream.Data()[stream.Data().size() - 2].Find("delta");
    EXPECT_EQ(whole, WriteJson(*delta.Find("stop_reason")) + WriteJson(*delta.Find("stop_sequence")));
    return whole;
  };
  EXPECT_EQ(reason("a END b", BackendFinish::kNone), "\"stop_sequence\"\"END\"");
  EXPECT_EQ(reason("a b", BackendFinish::kLength), "\"max_tokens\"null");
  EXPECT_EQ(reason("a b", BackendFinish::kStop), "\"end_turn\"null");
}

TEST(Case, D07MessagesUsage) {
  Stream stream(Protocol::kMessages);
  stream.Push(Ids("hello there"));
  stream.End(BackendFinish::kStop);
  const Json start = *stream.Data()[0].Find("message")->Find("usage");
  const Json end = *stream.Data()[stream.Data().size() - 2].Find("usage");
  for (const Json& usage : {start, end}) {
    EXPECT_EQ(*usage.Find("input_tokens")->ToInt64() + *usage.Find("cache_read_input_tokens")->ToInt64() +
                  *usage.Find("cache_creation_input_tokens")->ToInt64(),
              11);
  }
  EXPECT_EQ(*end.Find("output_tokens")->ToInt64(), static_cast<int64_t>(Ids("hello there").size()));
  EXPECT_EQ(end, *stream.Body().Find("usage"));
}

TEST(Case, D09ResponsesEventOrder) {
  Stream stream(Protocol::kResponses, Thinking());
  for (const TokenId id : Ids("why</think>ok" + OneCall(Parameter("a", true, "b")))) stream.Push({id});
  stream.End(BackendFinish::kStop);
  std::vector<std::string> names;
  int64_t next = 0;
  for (const SseEvent& event : stream.sse) {
    const Json data = *ParseJson(event.data);
    EXPECT_EQ(data.Find("type")->AsString(), event.event);
    EXPECT_EQ(*data.Find("sequence_number")->ToInt64(), next++);
    if (names.empty() || names.back() != event.event) names.push_back(event.event);
  }
  EXPECT_THAT(names, ElementsAre("response.created", "response.in_progress", "response.output_item.added",
                                 "response.content_part.added", "response.reasoning_text.delta",
                                 "response.reasoning_text.done", "response.content_part.done",
                                 "response.output_item.done", "response.output_item.added",
                                 "response.content_part.added", "response.output_text.delta",
                                 "response.output_text.done", "response.content_part.done",
                                 "response.output_item.done", "response.output_item.added",
                                 "response.function_call_arguments.delta", "response.function_call_arguments.done",
                                 "response.output_item.done", "response.completed"));
  const Json last = *ParseJson(stream.sse.back().data);
  EXPECT_EQ(last.Find("response")->Find("output")->Items().size(), 3u);
  EXPECT_EQ(*last.Find("response"), stream.Body());

  Stream cut(Protocol::kResponses);
  cut.Push(Ids("partial"));
  cut.End(BackendFinish::kLength);
  EXPECT_EQ(cut.sse.back().event, "response.incomplete");
}

TEST(Case, D16ErrorsInTheMiddleOfAStream) {
  const AnswerError error = ErrorFromStatus(Error(Code::kInternal, "device lost"));
  Stream chat(Protocol::kChat), responses(Protocol::kResponses), messages(Protocol::kMessages);
  for (Stream* stream : {&chat, &responses, &messages}) {
    stream->Push(Ids("one two three"));
    stream->writer->Fail(error, &stream->sse);
  }
  EXPECT_EQ(chat.Data().back().Find("error")->Find("message")->AsString(), "device lost");
  EXPECT_EQ(responses.sse.back().event, "response.failed");
  const Json failed = responses.Data().back();
  EXPECT_EQ(failed.Find("response")->Find("status")->AsString(), "failed");
  EXPECT_EQ(failed.Find("response")->Find("error")->Find("message")->AsString(), "device lost");
  EXPECT_EQ(*failed.Find("sequence_number")->ToInt64(), static_cast<int64_t>(responses.sse.size()) - 1);
  EXPECT_EQ(messages.sse.back().event, "error");
  EXPECT_EQ(messages.Data().back().Find("type")->AsString(), "error");
  EXPECT_EQ(messages.Data().back().Find("error")->Find("type")->AsString(), "api_error");
}

TEST(Case, D17AnthropicErrorShape) {
  const AnswerError bad = ErrorFromStatus(Error(Code::kInvalidArgument, "max_tokens: must be positive"));
  EXPECT_EQ(ErrorBody(Protocol::kMessages, Profile::kDefault, bad),
            R"({"type":"error","error":{"type":"invalid_request_error","message":"max_tokens: must be positive"},)"
            R"("request_id":null})");
  const AnswerError missing = ErrorFromStatus(Error(Code::kNotFound, "model: no such model"));
  EXPECT_THAT(ErrorBody(Protocol::kMessages, Profile::kDefault, missing), HasSubstr("\"not_found_error\""));
  EXPECT_EQ(ErrorBody(Protocol::kChat, Profile::kDefault, bad),
            R"({"error":{"message":"max_tokens: must be positive","type":"invalid_request_error","param":null,)"
            R"("code":"invalid_request_error"}})");
}

TEST(Case, D18KeepAlive) {
  for (const Protocol protocol : {Protocol::kChat, Protocol::kResponses, Protocol::kMessages, Protocol::kCompletions}) {
    Stream stream(protocol);
    std::string bytes;
    AppendSse(stream.writer->KeepAlive(), &bytes);
    EXPECT_EQ(bytes, protocol == Protocol::kMessages ? "event: ping\ndata: {\"type\":\"ping\"}\n\n" : ": keep-alive\n\n");
  }
}

}  // namespace
}  // namespace deepinfer::recipe
