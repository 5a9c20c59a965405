// SPDX-License-Identifier: Apache-2.0
// Holds this library against one record of request vectors (tests/golden/recipe/README.md).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/json.h"
#include "core/status.h"
#include "recipe/encode.h"
#include "recipe/options.h"

namespace deepinfer::recipe {

struct VectorEncoders {
  std::shared_ptr<PromptEncoder> published;  // nullptr where the tokenizer is not there
  std::shared_ptr<PromptEncoder> bundled;
};

// The records of a .jsonl or .jsonl.xz file, each as one line.
Result<std::vector<std::string>> ReadLines(const std::string& path);

// "field: expected ..., got ..." for each difference; empty where all is equal. Token ids are compared where the record
// and the encoders have them.
std::vector<std::string> CheckRequestVector(const Json& record, Profile profile, const VectorEncoders& encoders);

// Calls `check` with each line, on all cores, and returns the differences as "id: difference", in the order of the
// lines.
std::vector<std::string> CheckAll(const std::vector<std::string>& lines,
                                  const std::function<std::vector<std::string>(const Json&)>& check);

}  // namespace deepinfer::recipe
