// SPDX-License-Identifier: Apache-2.0
// The markup of tool calls, "DSML". Names, keys and values stand in it unescaped; what keeps them from forging markup
// is that only the control token ｜DSML｜ makes a tag.
//
//   V4.1: <｜DSML｜ calls>                      V4: <｜DSML｜tool_calls>
//         <｜DSML｜ invoke name="f">                 <｜DSML｜invoke name="f">
//         <｜DSML｜ parameter name="k" string="true">text</｜DSML｜ parameter>
//         </｜DSML｜ invoke>
//         </｜DSML｜ calls>
#include <string>
#include <string_view>

#include "recipe/prompt_json.h"
#include "recipe/render.h"

namespace deepinfer::recipe {
namespace {

// Arguments nested deeper than the service's parser allows are no JSON for it.
constexpr JsonLimits kArgumentLimits = {.size_bytes_max = size_t{64} << 20, .depth_max = 127, .nodes_max = 4u << 20};

class DsmlWriter {
 public:
  DsmlWriter(ModelVersion version, Prompt* prompt) : version_(version), prompt_(prompt) {}

  void OpenBlock() {
    Tag("<", Is41() ? "calls" : "tool_calls");
    prompt_->Add(">\n");
  }
  void CloseBlock() {
    Tag("</", Is41() ? "calls" : "tool_calls");
    prompt_->Add(">");
  }

  void Call(const ToolCall& call) {
    Tag("<", "invoke name=\"");
    prompt_->Add(call.name);
    prompt_->Add("\">\n");
    if (const auto arguments = ParseRequestJson(call.arguments, kArgumentLimits);
        arguments.ok() && arguments->IsObject()) {
      bool first = true;
      for (const auto& [key, value] : arguments->Members()) {
        if (!first) prompt_->Add("\n");
        first = false;
        Parameter(key, value);
      }
      if (Is41() || !first) prompt_->Add("\n");
    } else {
      Parameter("arguments", Json(call.arguments));
      prompt_->Add("\n");
    }
    Tag("</", "invoke");
    prompt_->Add(">");
  }

 private:
  bool Is41() const { return version_ == ModelVersion::kV41; }

  void Tag(std::string_view bracket, std::string_view name) {
    prompt_->Add(bracket);
    prompt_->Add(Control::kDsml);
    if (Is41()) prompt_->Add(" ");
    prompt_->Add(name);
  }

  void Parameter(std::string_view key, const Json& value) {
    Tag("<", "parameter name=\"");
    prompt_->Add(key);
    prompt_->Add(value.IsString() ? "\" string=\"true\">" : "\" string=\"false\">");
    prompt_->Add(value.IsString() ? value.AsString() : WritePromptJson(value, PromptForm(version_)));
    Tag("</", "parameter");
    prompt_->Add(">");
  }

  ModelVersion version_;
  Prompt* prompt_;
};

}  // namespace

void RenderCallsOpening(ModelVersion version, Prompt* prompt) {
  prompt->Add("\n\n");
  DsmlWriter(version, prompt).OpenBlock();
}

void RenderCalls(const std::vector<ToolCall>& calls, ModelVersion version, Prompt* prompt) {
  DsmlWriter writer(version, prompt);
  RenderCallsOpening(version, prompt);
  for (const ToolCall& call : calls) {
    writer.Call(call);
    prompt->Add("\n");
  }
  writer.CloseBlock();
}

}  // namespace deepinfer::recipe
