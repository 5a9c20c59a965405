// SPDX-License-Identifier: Apache-2.0
// Overlap of draft and model on given texts: sum over the vocabulary of min(p, q) at temperature 1, with the text's own
// tokens as the drafts before (teacher forcing). It is how often classic rejection sampling accepts the draft of that place.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

struct Text {
  std::vector<int32_t> ids;
  size_t begin = 0;  // drafts are compared from here on
};

// By place in a block: the mean over all anchors of the texts. `model`: directory of a checkpoint with a draft.
std::vector<double> Overlap(const std::string& model, const std::vector<Text>& texts);
