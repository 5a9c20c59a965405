// SPDX-License-Identifier: Apache-2.0
// Any bytes as the body of a request: it is refused with a message, or rendered, and then the control tokens among the
// ids are exactly those that the renderer put there (grounding spellings of the assistant are among them by design),
// and decoding the ids gives the prompt's text. The first byte picks protocol, profile and model version.
#include <cstdint>
#include <memory>
#include <vector>

#include "core/check.h"
#include "recipe/encode.h"
#include "recipe/parse_request.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer::recipe {
namespace {

void Run(uint8_t choice, std::string_view body) {
  static const std::shared_ptr<PromptEncoder> encoder =
      *PromptEncoder::Make(*Tokenizer::Load(DI_SOURCE_DIR "/models/deepseek-v41-tiny/tokenizer.json"));
  RecipeOptions options;
  options.profile = (choice & 4) != 0 ? Profile::kCompatible : Profile::kDefault;
  options.other_models = (choice & 8) != 0 ? ModelVersion::kV4 : ModelVersion::kV41;
  const auto request = ParseRequest(static_cast<Protocol>(choice & 3), body, options);
  if (!request.ok()) {
    DI_CHECK(!request.status().message().empty());
    DI_CHECK(request.status().code() != Code::kInternal);
    return;
  }
  (void)ResolveMaxTokens(*request, 100, 1000);
  const Prompt prompt = RenderRequest(*request);
  const auto ids = encoder->Encode(prompt);
  DI_CHECK(ids.ok());
  std::vector<TokenId> expected;
  for (const Segment& segment : prompt.segments()) {
    if (segment.control) expected.push_back(*encoder->Id(*segment.control));
  }
  std::vector<TokenId> found;
  for (const TokenId id : *ids) {
    if (encoder->tokenizer().IsAdded(id)) found.push_back(id);
  }
  DI_CHECK(found == expected);
  DI_CHECK(encoder->tokenizer().Decode(*ids) == prompt.Text());
}

}  // namespace
}  // namespace deepinfer::recipe

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  deepinfer::recipe::Run(data[0], {reinterpret_cast<const char*>(data) + 1, size - 1});
  return 0;
}
