// SPDX-License-Identifier: Apache-2.0
// deepinfer render and parse: requests to prompts and model output to answers, without running a model.
#include "deepinfer/recipe.h"

#include "cli/cli.h"
#include "cli/common.h"

namespace deepinfer::cli {
namespace {

Result<recipe::Protocol> ParseProtocol(const std::string& name) {
  if (name == "chat") return recipe::Protocol::kChat;
  if (name == "responses") return recipe::Protocol::kResponses;
  if (name == "messages") return recipe::Protocol::kMessages;
  if (name == "completions") return recipe::Protocol::kCompletions;
  return Error(Code::kInvalidArgument, "protocol \"{}\": expected chat, responses, messages or completions", name);
}

Result<std::shared_ptr<const recipe::Recipe>> LoadRecipe(const RecipeOptions& options) {
  DI_ASSIGN_OR_RETURN(const std::string directory, FindModel(options.model));
  recipe::RecipeSettings settings;
  if (options.profile == "compatible") {
    settings.profile = recipe::Profile::kCompatible;
    settings.models = {"DeepSeek-V4.1-Flash"};
  } else if (options.profile != "default") {
    return Error(Code::kInvalidArgument, "profile \"{}\": expected compatible or default", options.profile);
  }
  std::string why;
  auto recipe = recipe::Recipe::Load(directory + "/tokenizer.json", settings, &why);
  if (recipe == nullptr) return Error(Code::kDataLoss, "{}", why);
  return recipe;
}

Result<std::shared_ptr<const recipe::PreparedRequest>> Prepare(const recipe::Recipe& recipe, const RecipeOptions& options,
                                                               const std::string& body) {
  DI_ASSIGN_OR_RETURN(const recipe::Protocol protocol, ParseProtocol(options.protocol));
  recipe::RequestError error;
  auto request = recipe.Prepare(protocol, body, &error);
  if (request == nullptr) return Error(Code::kInvalidArgument, "{}", error.message);
  return request;
}

}  // namespace

Result<int> Render(const RecipeOptions& options) {
  DI_ASSIGN_OR_RETURN(const std::string body, ReadText("-"));
  DI_ASSIGN_OR_RETURN(const auto recipe, LoadRecipe(options));
  DI_ASSIGN_OR_RETURN(const auto request, Prepare(*recipe, options, body));
  DI_RETURN_IF_ERROR(Print(options.ids ? "[" + JoinIds(request->ids()) + "]\n" : request->text() + "\n"));
  return kExitOk;
}

Result<int> Parse(const RecipeOptions& options) {
  DI_ASSIGN_OR_RETURN(const auto recipe, LoadRecipe(options));
  DI_ASSIGN_OR_RETURN(const std::string body, ReadText(options.request_file));
  DI_ASSIGN_OR_RETURN(const auto request, Prepare(*recipe, options, body));
  DI_ASSIGN_OR_RETURN(const std::string output, ReadText("-"));
  const auto answer = recipe->Answer(request, {.id = "answer",
                                               .model = request->model(),
                                               .prompt_tokens = static_cast<int64_t>(request->ids().size())});
  std::string events;
  bool fits = true;
  if (options.ids) {
    DI_ASSIGN_OR_RETURN(const std::vector<TokenId> ids, ParseIds(output));
    fits = answer->PushTokens(0, ids, {}, &events);
  } else {
    fits = answer->PushText(0, output, 0, &events);
  }
  if (fits) fits = answer->Finish(0, recipe::FinishKind::kStop, &events);
  if (!fits) return Error(Code::kResourceExhausted, "the output is over a limit: {}", events);
  DI_RETURN_IF_ERROR(Print(options.events ? events : answer->Body() + "\n"));
  return kExitOk;
}

}  // namespace deepinfer::cli
