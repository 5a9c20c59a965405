// SPDX-License-Identifier: Apache-2.0
// The input items and the tools of OpenAI Responses. Internal to recipe.
// Thread-safe: functions of their arguments.
#pragma once

#include "core/status.h"
#include "recipe/fields.h"
#include "recipe/lowering.h"
#include "recipe/options.h"
#include "recipe/request.h"

namespace deepinfer::recipe {

// Appends the messages of `earlier` (an array of items, perhaps empty) and `input` (a string or an array of items, or not
// given) to the conversation; deferred tools that a tool search found are appended to its tools.
Status ParseResponsesInput(const Field& earlier, const Field& input, const RecipeOptions& options, ToolChecks checks,
                           Request* request);

// Reads a list of tools: appends definitions to `tools`, notes namespaces and custom tools in the request's answer
// options, and appends to `echo`, where given, how the answer reports each tool.
Status ParseResponsesTools(const Field& list, const RecipeOptions& options, Request* request,
                           ToolChecks checks, std::vector<ToolDefinition>* tools, Json::Array* echo);

}  // namespace deepinfer::recipe
