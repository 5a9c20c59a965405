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

TEST_F(OutputGrammarTest, TheThinkingIsFree) {  // B30
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
