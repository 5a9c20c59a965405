// SPDX-License-Identifier: Apache-2.0
// A Chat request to token ids, and a model's text back to an answer: deepinfer_recipe_example TOKENIZER_JSON < body.json
#include <deepinfer/recipe.h>

#include <cstdio>
#include <iostream>
#include <iterator>
#include <string>

int main(int argc, char** argv) {
  using namespace deepinfer::recipe;
  if (argc != 2) {
    std::cerr << "usage: deepinfer_recipe_example TOKENIZER_JSON < request.json\n";
    return 2;
  }
  std::string why;
  const auto recipe = Recipe::Load(argv[1], {}, &why);
  if (recipe == nullptr) {
    std::cerr << why << "\n";
    return 1;
  }
  const std::string body((std::istreambuf_iterator<char>(std::cin)), std::istreambuf_iterator<char>());
  RequestError error;
  const auto request = recipe->Prepare(Protocol::kChat, body, &error);
  if (request == nullptr) {
    std::cerr << error.body << "\n";
    return 1;
  }
  for (const int id : request->ids()) std::cout << id << ' ';
  std::cout << "\n";

  // An engine would generate here; this is what a model might have said.
  const auto answer = recipe->Answer(
      request, {.id = "chatcmpl-1", .model = request->model(), .system_fingerprint = "", .created = 0,
                .prompt_tokens = static_cast<int64_t>(request->ids().size()), .cached_tokens = 0});
  answer->PushText(0, "Greet back.</think>", 4, nullptr);
  answer->PushText(0, "Hello!", 2, nullptr);
  answer->Finish(0, FinishKind::kStop, nullptr);
  std::cout << answer->Body() << "\n";
  return 0;
}
