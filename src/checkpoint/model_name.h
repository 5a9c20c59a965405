// SPDX-License-Identifier: Apache-2.0
// Names of models on the Hugging Face hub: "org/name" or "org/name@revision". Names end up in paths and URLs, so only
// plain characters are allowed.
#pragma once

#include <string>
#include <string_view>

#include "core/status.h"

namespace deepinfer::checkpoint {

struct ModelName {
  std::string repository;         // "org/name"
  std::string revision = "main";  // a branch, a tag, "refs/pr/1" or a commit
  bool revision_given = false;

  std::string ToString() const { return repository + "@" + revision; }
};

// kInvalidArgument for what is no such name.
Result<ModelName> ParseModelName(std::string_view text);

// 40 hexadecimal digits.
bool IsCommit(std::string_view revision);
bool IsLowerHex(std::string_view text);

}  // namespace deepinfer::checkpoint
