// SPDX-License-Identifier: Apache-2.0
// How one request wants its tokens drawn. A plain value; Validate() before use.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "core/status.h"

namespace deepinfer::sampling {

// Less than this is as good as 0: noise could only decide between logits that differ in their last bits, and a logit
// divided by much less is no number any more.
inline constexpr float kTemperatureMin = 1e-6f;

struct SamplingParams {
  float temperature = 0;          // up to 100; under kTemperatureMin: greedy
  int64_t top_k = 0;              // 0: off
  float top_p = 1;                // (0, 1]
  float min_p = 0;                // [0, 1]: relative to the most probable token
  float repetition_penalty = 1;   // (0, 10]: divides positive logits of tokens seen in prompt or answer, multiplies others
  float presence_penalty = 0;     // [-2, 2]: taken off the logit of each token of the answer
  float frequency_penalty = 0;    // [-2, 2]: the same, times its count
  std::vector<std::pair<int32_t, float>> logit_bias;  // token id, added to its logit
  uint64_t seed = 0;
  uint32_t choice = 0;            // which of n answers

  // kInvalidArgument names the field and its range.
  Status Validate(int64_t vocab_size) const;
  bool greedy() const { return temperature < kTemperatureMin; }
  bool has_filters() const { return top_k > 0 || top_p < 1 || min_p > 0; }
  bool has_penalties() const { return repetition_penalty != 1 || presence_penalty != 0 || frequency_penalty != 0; }
};

}  // namespace deepinfer::sampling
