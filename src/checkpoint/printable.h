// SPDX-License-Identifier: Apache-2.0
// Names out of files and from servers, as they may stand in a message: a terminal must not obey them.
#pragma once

#include <string>
#include <string_view>

namespace deepinfer::checkpoint {

// At most 200 characters; what is not printable ASCII becomes '?'.
std::string Printable(std::string_view text);

}  // namespace deepinfer::checkpoint
