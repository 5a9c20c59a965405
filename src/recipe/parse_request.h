// SPDX-License-Identifier: Apache-2.0
// From the body of a request to a Request. Errors name the field by its JSON pointer ("/messages/3/content: ...");
// kInvalidArgument where the request is wrong, kNotFound for an unknown model, kResourceExhausted for a limit,
// kUnimplemented for what is recognised and not supported.
// Thread-safe: functions of their arguments.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/status.h"
#include "recipe/options.h"
#include "recipe/request.h"

namespace deepinfer::recipe {

// `earlier`: Responses, for previous_response_id (default profile); without it the field is only reported back.
Result<Request> ParseRequest(Protocol protocol, std::string_view body, const RecipeOptions& options,
                             const EarlierItemsFn& earlier = {});

// The number of tokens to generate at most: what was asked for, or a default lowered to the room that is left, at
// least 1. `prompt_tokens` counts each image with all its tokens. Error where the prompt, with what was asked for, does
// not fit `context_tokens`.
Result<int64_t> ResolveMaxTokens(const Request& request, int64_t prompt_tokens, int64_t context_tokens);

}  // namespace deepinfer::recipe
