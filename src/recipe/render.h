// SPDX-License-Identifier: Apache-2.0
// From a conversation to the prompt that the model was trained with.
// Thread-safe: a function of its arguments. Cost: linear in the text of the conversation.
#pragma once

#include "recipe/conversation.h"
#include "recipe/prompt.h"

namespace deepinfer::recipe {

Prompt RenderConversation(const Conversation& conversation, ModelVersion version);

// The block of calls of one assistant message, as it stands in a prompt and as the model writes it.
// REQUIRES: calls is not empty.
void RenderCalls(const std::vector<ToolCall>& calls, ModelVersion version, Prompt* prompt);

// The text that opens a call block: what a prompt ends with when a call is required.
void RenderCallsOpening(ModelVersion version, Prompt* prompt);

}  // namespace deepinfer::recipe
