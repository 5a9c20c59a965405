// SPDX-License-Identifier: Apache-2.0
// The inside of a JSON string, piece by piece. Stateless.
#pragma once

#include <string>
#include <string_view>

namespace deepinfer::recipe {

// Appends `text` escaped as within a JSON string, without the quotes: what AppendJsonString() of core/json.h writes
// between them, for valid UTF-8. The result for a text is the results for its pieces, joined, wherever it is cut.
void AppendJsonEscaped(std::string_view text, std::string* out);

}  // namespace deepinfer::recipe
