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

struct OverlapResult {
  std::vector<double> places;  // by place in a block: the mean over all anchors of the texts
  double tokens = 0;           // a step: the mean over anchors of 1 + the sum of running products (places go together in a block)
  // The same for who walks through the texts by rejection, from anchor to anchor: easy stretches are few steps, so that most
  // steps begin where drafts are hard. Expectations given the texts, which must be samples at temperature 1: draft j of a block
  // stands, if those before it do, with probability min(1, q / p) of the text's token. Place j: given that all before it stand.
  std::vector<double> walk_places;
  double walk_tokens = 0;
};
// `model`: directory of a checkpoint with a draft.
OverlapResult Overlap(const std::string& model, const std::vector<Text>& texts);
