// SPDX-License-Identifier: Apache-2.0
// The message list as it is rendered: neighbours merged, tool results in the order of their calls, and a system message
// in front where the tools or the response format need one.
// Thread-safe: a function of its arguments.
#pragma once

#include <vector>

#include "recipe/conversation.h"

namespace deepinfer::recipe {

// `needs_system`: a tools text or a response format will be put into the first message.
std::vector<Message> NormalizeMessages(const std::vector<Message>& messages, ModelVersion version, bool needs_system);

}  // namespace deepinfer::recipe
