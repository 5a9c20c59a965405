// SPDX-License-Identifier: Apache-2.0
// Reads an .xz file of test data: its lines, each a JSON document.
#pragma once

#include <string>
#include <vector>

#include "core/json.h"

namespace deepinfer::grammar {

// Ends the process with a message where the file cannot be read: test data that is missing is a broken checkout.
std::vector<Json> ReadJsonLines(const std::string& path);

}  // namespace deepinfer::grammar
