// SPDX-License-Identifier: Apache-2.0
// Property: every way in which a request can constrain its output becomes a grammar that takes what the request allows and
// nothing else, begins where the thinking ends, and is refused with the field's name where it cannot be enforced.
#include "recipe/constraint/output_grammar.h"

#include <gtest/gtest.h>

#include "recipe/control.h"
#include "recipe/parse_request.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer::recipe {
namespace {

class OutputGrammarTest : public ::testing::Test {
 protected:
  OutputGrammarTest() {
    tokenizer_ = *Tokenizer::Load(DI_SOURCE_DIR "/models/deepseek-v41-tiny/tokenizer.json");
    std::vector<std::string> bytes(static_cast<size_t>(tokenizer_->vocab_size()));
    for (TokenId id = 0; id < tokenizer_->vocab_size(); ++id) bytes[static_cast<size_t>(id)] = tokenizer_->TokenBytes(id);
    std::vector<uint32_t> special;
    for (const AddedToken& token : tokenizer_->added_tokens()) special.push_back(static_cast<uint32_t>(token.id));
    const uint32_t stop[] = {static_cast<uint32_t>(Id(Control::kEos))};
    vocabulary_ = grammar::Vocabulary::Create(bytes, special, stop);
  }
  int32_t Id(Control control) const { return tokenizer_->TokenToId(Spelling(control)).value_or(-1); }

  Result<std::optional<OutputGrammar>> Make(Protocol protocol, const std::string& body) {
    RecipeOptions options;
    options.other_models = ModelVersion::kV41;
    DI_ASSIGN_OR_RETURN(const Request request, ParseRequest(protocol, body, options));
    return MakeOutputGrammar(request, [this](std::string_view token) { return tokenizer_->TokenToId(token); });
  }
  // A chat request with `fields`, thinking off.
  static std::string Chat(const std::string& fields) {
    return R"({"model":"m","thinking":{"type":"disabled"},"messages":[{"role":"user","content":"json please"}],)" + fields + "}";
  }
  Result<grammar::CompiledGrammar> Compile(const OutputGrammar& output) {
    return CompileOutputGrammar(output, &cache_, vocabulary_, {});
  }
  // "" where the request is fine, else the error.
  std::string Refused(const std::string& fields) {
    const auto output = Make(Protocol::kChat, Chat(fields));
    if (!output.ok()) return output.status().message();
    if (!*output) return "no constraint";
    const auto compiled = Compile(**output);
    EXPECT_TRUE(compiled.ok() || compiled.status().code() == Code::kInvalidArgument);
    return compiled.ok() ? "" : compiled.status().message();
  }
  // Whether `text`, with the spellings of control tokens as tokens, may be the whole output.
  bool Takes(const OutputGrammar& output, std::string_view text) {
    const auto compiled = Compile(output);
    EXPECT_TRUE(compiled.ok()) << compiled.status().message();
    if (!compiled.ok()) return false;
    grammar::Matcher matcher(*compiled);
    const std::vector<TokenId> ids = *tokenizer_->Encode(text);
    for (const TokenId id : ids) {
      if (!matcher.Accept(static_cast<uint32_t>(id)).ok()) return false;
    }
    return matcher.IsComplete();
  }
  bool Takes(const std::string& fields, std::string_view text) {
    const auto output = Make(Protocol::kChat, Chat(fields));
    EXPECT_TRUE(output.ok() && *output) << fields << output.status().message();
    return output.ok() && *output && Takes(**output, text);
  }

  std::shared_ptr<const Tokenizer> tokenizer_;
  std::shared_ptr<const grammar::Vocabulary> vocabulary_;
  grammar::CompileCache cache_;
};

const std::string kSchema = R"({"type":"object","properties":{"a":{"type":"integer"}},"required":["a"],"additionalProperties":false})";

const std::string kLookAhead = R"re({"type":"object","properties":{"a":{"type":"string","pattern":"(?=x)"}}})re";

std::string Tool(const std::string& name, const std::string& more) {
  return R"({"type":"function","function":{"name":")" + name + "\"" + more + "}}";
}
std::string Call(const std::string& name, const std::string& inside) {
  return "<｜DSML｜ invoke name=\"" + name + "\">\n" + inside + "\n</｜DSML｜ invoke>";
}
std::string Block(const std::string& calls) { return "<｜DSML｜ calls>\n" + calls + "\n</｜DSML｜ calls>"; }
const std::string kA12 = R"(<｜DSML｜ parameter name="a" string="false">12</｜DSML｜ parameter>)";
const std::string kAText = R"(<｜DSML｜ parameter name="a" string="true">12</｜DSML｜ parameter>)";

TEST_F(OutputGrammarTest, FormatsAndGuidedFields) {
  const std::string json[] = {
      R"("response_format":{"type":"json_schema","json_schema":{"name":"t","strict":true,"schema":)" + kSchema + "}}",
      R"("response_format":{"type":"json_schema","json_schema":{"name":"t","schema":)" + kSchema + "}}",
      R"("guided_json":)" + kSchema,
      R"("structured_outputs":{"json":)" + kSchema + "}",
  };
  for (const std::string& fields : json) {
    EXPECT_TRUE(Takes(fields, R"({"a":1})")) << fields;
    EXPECT_TRUE(Takes(fields, R"({ "a": 1 })")) << fields;
    EXPECT_FALSE(Takes(fields, R"({"a":"1"})")) << fields;
    EXPECT_FALSE(Takes(fields, "Sure: {\"a\":1}")) << fields;
  }
  EXPECT_TRUE(Takes(R"("guided_json":"{\"type\":\"boolean\"}")", "true"));
  EXPECT_TRUE(Takes(R"("response_format":{"type":"json_object"})", R"({"x":[1,{}]})"));
  EXPECT_FALSE(Takes(R"("response_format":{"type":"json_object"})", "[]"));
  EXPECT_TRUE(Takes(R"("structured_outputs":{"json_object":true})", "{}"));
  for (const char* fields : {R"("response_format":{"type":"regex","regex":"[0-9]{3}"})", R"("guided_regex":"[0-9]{3}")",
                             R"("regex":"[0-9]{3}")", R"("structured_outputs":{"regex":"[0-9]{3}"})"}) {
    EXPECT_TRUE(Takes(fields, "123")) << fields;
    EXPECT_FALSE(Takes(fields, "12")) << fields;
  }
  for (const char* fields : {R"("guided_choice":["yes","no"])", R"("structured_outputs":{"choice":["yes","no"]})"}) {
    EXPECT_TRUE(Takes(fields, "no")) << fields;
    EXPECT_FALSE(Takes(fields, "maybe")) << fields;
  }
  for (const char* fields : {R"("guided_grammar":"root ::= \"a\"+ \"b\"")", R"("ebnf":"root ::= \"a\"+ \"b\"")",
                             R"("guided_grammar":"start: \"a\"+ \"b\"")"}) {
    EXPECT_TRUE(Takes(fields, "aab")) << fields;
    EXPECT_FALSE(Takes(fields, "ba")) << fields;
  }
  const std::string tag =
      R"({"type":"structural_tag","structures":[{"begin":"<f>","schema":{"type":"integer"},"end":"</f>"}],"triggers":["<f"]})";
  for (const std::string& fields : {"\"response_format\":" + tag, R"("structured_outputs":{"structural_tag":)" + tag + "}"}) {
    EXPECT_TRUE(Takes(fields, "so <f>12</f> it is")) << fields;
    EXPECT_FALSE(Takes(fields, "so <f>x</f>")) << fields;
  }
}

TEST_F(OutputGrammarTest, OtherProtocols) {
  const auto responses = Make(Protocol::kResponses, R"({"model":"m","reasoning":{"effort":"none"},"input":"x","text":{"format":
      {"type":"json_schema","name":"t","strict":true,"schema":)" + kSchema + "}}}");
  ASSERT_TRUE(responses.ok() && *responses) << responses.status().message();
  EXPECT_EQ((*responses)->field, "/text/format/schema");
  EXPECT_TRUE(Takes(**responses, R"({"a":1})"));
  const auto messages = Make(Protocol::kMessages, R"({"model":"m","max_tokens":9,"thinking":{"type":"disabled"},"messages":
      [{"role":"user","content":"x"}],"output_config":{"format":{"type":"json_schema","schema":)" + kSchema + "}}}");
  ASSERT_TRUE(messages.ok() && *messages) << messages.status().message();
  EXPECT_EQ((*messages)->field, "/output_config/format/schema");
  EXPECT_FALSE(Takes(**messages, R"({"a":true})"));
  const auto strict = Make(Protocol::kMessages, R"({"model":"m","max_tokens":9,"thinking":{"type":"disabled"},"messages":
      [{"role":"user","content":"x"}],"tools":[{"name":"f","strict":true,"input_schema":)" + kSchema + "}]}");
  ASSERT_TRUE(strict.ok() && *strict) << strict.status().message();
  EXPECT_TRUE(Takes(**strict, "Here: " + Block(Call("f", kA12))));
  EXPECT_FALSE(Takes(**strict, "Here: " + Block(Call("f", kAText))));
  const auto completion = Make(Protocol::kCompletions, R"({"model":"m","prompt":"x","guided_choice":["yes"]})");
  ASSERT_TRUE(completion.ok() && *completion);
  EXPECT_TRUE(Takes(**completion, "yes"));
}

TEST_F(OutputGrammarTest, B30TheThinkingIsFree) {
  for (const std::string fields : {"\"response_format\":{\"type\":\"json_object\"}", "\"guided_regex\":\"x\"",
                                   "\"guided_choice\":[\"a\"]", "\"guided_json\":true"}) {
    const auto output = Make(Protocol::kChat, R"({"model":"m","messages":[{"role":"user","content":"json"}],)" + fields + "}");
    ASSERT_TRUE(output.ok() && *output) << fields << output.status().message();
    EXPECT_EQ((*output)->begins_after, Id(Control::kThinkEnd));
    EXPECT_EQ((*Make(Protocol::kChat, Chat(fields)))->begins_after, std::nullopt);
  }
}

TEST_F(OutputGrammarTest, CallsAreWellFormedAndStrictOnesFollowTheirSchema) {
  const std::string loose = R"("tools":[)" + Tool("f", ",\"parameters\":" + kSchema) + "]";
  const std::string strict = R"("tools":[)" + Tool("f", ",\"strict\":true,\"parameters\":" + kSchema) + "]";
  for (const std::string& fields : {loose, strict}) {
    EXPECT_TRUE(Takes(fields, "no call")) << fields;
    EXPECT_TRUE(Takes(fields, "Two.\n\n" + Block(Call("f", kA12) + "\n" + Call("f", kA12)))) << fields;
    EXPECT_FALSE(Takes(fields, Block(Call("g", kA12)))) << fields;
    EXPECT_FALSE(Takes(fields, Block(Call("f", "a = 12")))) << fields;
    EXPECT_FALSE(Takes(fields, "<｜DSML｜ invoke")) << fields;
  }
  EXPECT_TRUE(Takes(loose, Block(Call("f", kAText))));
  EXPECT_FALSE(Takes(strict, Block(Call("f", kAText))));
  EXPECT_TRUE(Takes(strict, "a box <｜ref｜>x<｜/ref｜>"));
  EXPECT_FALSE(Takes(strict + R"(,"parallel_tool_calls":false)", Block(Call("f", kA12) + "\n" + Call("f", kA12))));
  // Required: the prompt has opened the block, and the schema counts, strict or not.
  const std::string required = loose + R"(,"tool_choice":"required")";
  EXPECT_TRUE(Takes(required, Call("f", kA12) + "\n</｜DSML｜ calls>"));
  EXPECT_FALSE(Takes(required, Call("f", kAText) + "\n</｜DSML｜ calls>"));
  EXPECT_FALSE(Takes(required, "no call"));
  // Unless it cannot be enforced, and nothing was promised.
  const std::string odd = ",\"parameters\":" + kLookAhead;
  EXPECT_EQ(Refused(R"("tools":[)" + Tool("f", odd) + R"(],"tool_choice":"required")"), "");
}

// A raw string ends at the closing marker alone: neither its bytes nor the control token can come within, however they are
// cut into tokens, so nothing that a model writes there can be taken for a tag.
TEST_F(OutputGrammarTest, RawStringsExcludeTheClosingMarker) {
  const std::string schema = R"({"type":"object","properties":{"s":{"type":"string"}},"required":["s"],"additionalProperties":false})";
  const std::string tool = Tool("f", ",\"strict\":true,\"parameters\":" + schema);
  const auto output = Make(Protocol::kChat, Chat("\"tools\":[" + tool + R"(],"tool_choice":"required")"));
  ASSERT_TRUE(output.ok() && *output) << output.status().message();
  const auto compiled = Compile(**output);
  ASSERT_TRUE(compiled.ok()) << compiled.status().message();
  grammar::Matcher matcher(*compiled);
  const auto accept = [&](std::span<const TokenId> ids) {
    size_t taken = 0;
    while (taken < ids.size() && matcher.Accept(static_cast<uint32_t>(ids[taken])).ok()) ++taken;
    if (taken < ids.size()) matcher.Rollback(taken);
    return taken == ids.size();
  };
  const auto ids = [&](std::string_view text, bool added) { return *tokenizer_->Encode(text, {.added_tokens = added}); };
  const auto one_by_one = [&](std::string_view text) {
    std::vector<TokenId> bytes;
    for (const char c : text) {
      for (TokenId id = 0; id < tokenizer_->vocab_size(); ++id) {
        if (tokenizer_->TokenBytes(id) == std::string(1, c)) bytes.push_back(id);
      }
    }
    EXPECT_EQ(bytes.size(), text.size());
    return bytes;
  };
  ASSERT_TRUE(accept(ids("<｜DSML｜ invoke name=\"f\">\n<｜DSML｜ parameter name=\"s\" string=\"true\">some ", true)));
  // Bytes: as the tokenizer cuts them, one by one, and behind text that begins like the marker.
  const std::string marker = "</｜DSML｜";
  for (const std::string& before : {std::string(), std::string("<"), std::string("</"), std::string("</｜"), std::string("</｜DSML")}) {
    ASSERT_TRUE(accept(ids(before, false))) << before;
    EXPECT_FALSE(accept(ids(marker, false))) << before;
    EXPECT_FALSE(accept(one_by_one(marker))) << before;
    EXPECT_TRUE(accept(one_by_one(marker.substr(0, marker.size() - 1)))) << before;
    EXPECT_FALSE(accept(one_by_one(marker.substr(marker.size() - 1)))) << before;
    ASSERT_TRUE(accept(one_by_one("\x9D. ")));  // another character that begins with the same bytes
  }
  // What only looks like it may come.
  for (const char* text : {"<｜DSML｜ parameter name=\"x\">", "</|DSML|", "< /｜DSML｜", "</｜dsml｜", "</parameter>"}) {
    EXPECT_TRUE(accept(ids(text, false))) << text;
  }
  // No control token, not even the marker's, but as the whole closing tag.
  const TokenId dsml = Id(Control::kDsml);
  std::vector<uint32_t> mask(vocabulary_->mask_words());
  const auto controls = [&] {
    std::vector<TokenId> allowed;
    EXPECT_TRUE(matcher.FillMask(mask).ok());
    for (const AddedToken& token : tokenizer_->added_tokens()) {
      if ((mask[static_cast<size_t>(token.id) / 32] >> (token.id % 32) & 1) != 0) allowed.push_back(token.id);
    }
    return allowed;
  };
  EXPECT_EQ(controls(), std::vector<TokenId>());
  EXPECT_FALSE(accept(std::vector<TokenId>{dsml}));
  ASSERT_TRUE(accept(ids("<", false)));
  EXPECT_EQ(controls(), std::vector<TokenId>());  // that would open a tag
  ASSERT_TRUE(accept(ids("/", false)));
  EXPECT_EQ(controls(), std::vector<TokenId>{dsml});
  for (const char* tag : {"</｜DSML｜ invoke>", "</｜DSML｜ calls>", "</｜DSML｜parameter>", "</｜DSML｜ parameter name"}) {
    EXPECT_FALSE(accept(ids(std::string(tag).substr(2), true))) << tag;
  }
  EXPECT_TRUE(accept(ids("｜DSML｜ parameter>\n</｜DSML｜ invoke>\n</｜DSML｜ calls>", true)));
  EXPECT_TRUE(matcher.IsComplete());
}

TEST_F(OutputGrammarTest, HowJsonIsWritten) {
  const std::string schema = R"({"type":"object","properties":{"a":{"type":"integer"}}})";
  const std::string format = R"("response_format":{"type":"json_schema","json_schema":{"name":"t","schema":)" + schema + "}}";
  const std::string more = R"({"a":1,"b":2})", closed = R"(,"structured_outputs":{"disable_additional_properties":true})";
  EXPECT_TRUE(Takes(format, more));
  EXPECT_FALSE(Takes(format + closed, more));
  EXPECT_TRUE(Takes(format + closed, R"({"a": 1})"));
  const std::string tool = R"("tools":[)" + Tool("f", ",\"parameters\":" + schema) + R"(],"tool_choice":"required")";
  const std::string call = Call("f", kA12 + "\n" R"(<｜DSML｜ parameter name="b" string="false">2</｜DSML｜ parameter>)") + "\n</｜DSML｜ calls>";
  EXPECT_TRUE(Takes(tool, call));
  EXPECT_FALSE(Takes(tool + closed, call));
  const auto form = [&](const std::string& fields, const OutputDefaults& defaults) {
    RecipeOptions options;
    options.other_models = ModelVersion::kV41;
    const auto request = ParseRequest(Protocol::kChat, Chat(format + fields), options);
    EXPECT_TRUE(request.ok()) << request.status().message();
    return **MakeOutputGrammar(*request, [this](std::string_view token) { return tokenizer_->TokenToId(token); }, defaults);
  };
  // The request's word counts before the server's.
  EXPECT_FALSE(form("", {}).compact);
  EXPECT_TRUE(form("", {.compact = true}).compact);
  EXPECT_TRUE(form(R"(,"structured_outputs":{"disable_any_whitespace":true})", {}).compact);
  EXPECT_FALSE(form(R"(,"structured_outputs":{"disable_any_whitespace":false})", {.compact = true}).compact);
  EXPECT_FALSE(Takes(form("", {.schema = {.closed = true}}), more));
  EXPECT_TRUE(Takes(form(R"(,"structured_outputs":{"disable_additional_properties":false})", {.schema = {.closed = true}}), more));
  const std::string text = R"("guided_json":{"type":"array","items":{"type":"string"}})";
  const std::string limits = R"(,"structured_outputs":{"default_max_length":3,"default_max_items":2})";
  EXPECT_TRUE(Takes(text, R"(["four","b","c"])"));
  EXPECT_TRUE(Takes(text + limits, R"(["abc","b"])"));
  EXPECT_FALSE(Takes(text + limits, R"(["four"])"));
  EXPECT_FALSE(Takes(text + limits, R"(["a","b","c"])"));
  const std::string why = Refused(format + R"(,"structured_outputs":{"whitespace_pattern":"x"})");
  EXPECT_EQ(why.rfind("/structured_outputs/whitespace_pattern: ", 0), 0u) << why;
  EXPECT_EQ(Refused(R"("guided_json":true,"guided_whitespace_pattern":"x")").rfind("/guided_whitespace_pattern: ", 0), 0u);
}

// What the official client makes of a class: references, unions, enumerations.
TEST_F(OutputGrammarTest, StrictSchemasOfClients) {
  const std::string schema = R"({"$defs":{"C":{"enum":["red"],"title":"C","type":"string"},"P":{"properties":{"c":{"$ref":"#/$defs/C"}},
      "required":["c"],"title":"P","type":"object","additionalProperties":false}},"properties":
      {"p":{"anyOf":[{"$ref":"#/$defs/P"},{"type":"null"}]},"n":{"type":"integer","maximum":3}},
      "required":["p","n"],"title":"T","type":"object","additionalProperties":false})";
  const std::string format = R"("response_format":{"type":"json_schema","json_schema":{"name":"t","strict":true,"schema":)" + schema + "}}";
  EXPECT_TRUE(Takes(format, R"({"p":{"c":"red"},"n":3})"));
  EXPECT_TRUE(Takes(format, R"({"p":null,"n":-1})"));
  for (const char* bad : {R"({"p":{"c":"blue"},"n":3})", R"({"p":null,"n":4})", R"({"p":null})", R"({"p":null,"n":1,"x":1})"}) {
    EXPECT_FALSE(Takes(format, bad)) << bad;
  }
  const std::string draft4 = R"({"$schema":"http://json-schema.org/draft-04/schema#","type":"object","properties":)"
                             R"({"a":{"type":"null"}},"additionalProperties":false})";
  EXPECT_FALSE(Takes("\"guided_json\":" + draft4, R"({"a":null,"b":1})"));
  EXPECT_TRUE(Takes(R"("response_format":{"type":"json_schema","json_schema":{"name":"t","schema":)" + draft4 + "}}", R"({"a":null})"));
  const std::string anchor = R"({"$schema":"http://json-schema.org/draft-04/schema#","properties":{"a":{"$ref":"#one"}},)"
                             R"("definitions":{"x":{"id":"#one","enum":[1]}}})";
  const std::string by_anchor = R"("response_format":{"type":"json_schema","json_schema":{"name":"t","schema":)" + anchor + "}}";
  EXPECT_TRUE(Takes(by_anchor, R"({"a":1})"));
  EXPECT_FALSE(Takes(by_anchor, R"({"a":2})"));
  const std::string both = R"("tools":[)" + Tool("f", ",\"strict\":true,\"parameters\":" + kSchema) + "," +
                           Tool("g", ",\"parameters\":" + kSchema) + "]";
  EXPECT_FALSE(Takes(both, Block(Call("f", kAText))));
  EXPECT_TRUE(Takes(both, Block(Call("g", kAText))));
}

TEST_F(OutputGrammarTest, B34ToolsWithoutParameters) {
  const std::string nothing = "\n</｜DSML｜ invoke>\n</｜DSML｜ calls>";
  for (const char* more : {"", ",\"parameters\":{}", ",\"parameters\":{\"type\":\"object\"}",
                           ",\"parameters\":{\"type\":\"object\",\"properties\":{}}",
                           ",\"parameters\":{\"type\":\"object\",\"properties\":{},\"additionalProperties\":false}"}) {
    for (const char* choice : {R"("required")", R"({"type":"function","function":{"name":"now"}})"}) {
      const std::string fields = R"("tools":[)" + Tool("now", more) + R"(],"tool_choice":)" + choice;
      EXPECT_TRUE(Takes(fields, "<｜DSML｜ invoke name=\"now\">\n" + nothing)) << fields;
    }
  }
  const std::string fields = R"("tools":[)" + Tool("now", "") + R"(],"tool_choice":"required")";
  EXPECT_FALSE(Takes(fields, Call("now", kA12) + "\n</｜DSML｜ calls>"));
}

TEST_F(OutputGrammarTest, ContentBesideCalls) {
  const std::string both = R"("tools":[)" + Tool("f", ",\"parameters\":" + kSchema) +
                           R"(],"response_format":{"type":"json_schema","json_schema":{"name":"t","schema":)" + kSchema + "}}";
  EXPECT_TRUE(Takes(both, R"({"a":1})"));
  EXPECT_TRUE(Takes(both, "\n\n" + Block(Call("f", kA12))));
  EXPECT_FALSE(Takes(both, "prose"));
  EXPECT_FALSE(Takes(both, R"({"a":1})" + Block(Call("f", kA12))));
  EXPECT_NE(Refused(R"("guided_choice":["a"],"tools":[)" + Tool("f", "") + "]").find("/guided_choice: "), std::string::npos);
}

TEST_F(OutputGrammarTest, B35ToolChoiceWithoutTools) {
  EXPECT_EQ(Refused(R"("tool_choice":"required")").rfind("/tool_choice: ", 0), 0u);
  EXPECT_EQ(Refused(R"("tool_choice":"required","tools":[])").rfind("/tool_choice: ", 0), 0u);
  const std::string named = R"("tool_choice":{"type":"function","function":{"name":"g"}})";
  EXPECT_EQ(Refused(named).rfind("/tool_choice: ", 0), 0u);
  EXPECT_EQ(Refused(named + R"(,"tools":[)" + Tool("f", "") + "]").rfind("/tool_choice: ", 0), 0u);
}

TEST_F(OutputGrammarTest, RefusalsNameFieldKeywordAndPlace) {
  const auto names = [&](const std::string& fields, std::initializer_list<const char*> parts) {
    const std::string why = Refused(fields);
    for (const char* part : parts) EXPECT_NE(why.find(part), std::string::npos) << fields << "\n  " << why;
  };
  names(R"("response_format":{"type":"json_schema","json_schema":{"name":"t","schema":)" + kLookAhead + "}}",
        {"/response_format/json_schema/schema: ", "#/properties/a", "pattern"});
  names(R"("guided_json":)" + kLookAhead, {"/guided_json: ", "#/properties/a"});
  // B01, B02 and B44, as requests.
  for (const char* regex : {"[", "(?<=a)b", "(", "a{3,1}", "\\\\p{Nope}"}) {
    names(R"("guided_regex":")" + std::string(regex) + "\"", {"/guided_regex: "});
  }
  for (const char* json : {"\"\"", "false", "[]", "3"}) names(R"("guided_json":)" + std::string(json), {"/guided_json: "});
  names(R"("guided_choice":[])", {"/guided_choice: "});
  names(R"("guided_choice":[""])", {"/guided_choice: "});
  names(R"("guided_grammar":"")", {"/guided_grammar: "});
  names(R"("guided_grammar":"root ::= missing \"x\"")", {"/guided_grammar: ", "missing"});
  names(R"("structured_outputs":{"structural_tag":""})", {"/structured_outputs/structural_tag: "});
  names(R"("structured_outputs":{"structural_tag":{}})", {"/structured_outputs/structural_tag: "});
  names(R"("guided_regex":"a","guided_choice":["a"])", {"/guided_choice: ", "/guided_regex"});
  names(R"("guided_regex":"a","response_format":{"type":"json_object"})", {"/guided_regex: "});
}

}  // namespace
}  // namespace deepinfer::recipe
