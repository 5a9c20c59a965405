// SPDX-License-Identifier: Apache-2.0
#include "sampling/params.h"

#include <cmath>

namespace deepinfer::sampling {
namespace {

// low <= value <= high, or low < value where `open`. NaN fails.
Status InRange(const char* name, float value, float low, float high, bool open = false) {
  if (value <= high && (open ? value > low : value >= low)) return Status();
  return Error(Code::kInvalidArgument, "{}: expected {}{}, {}], found {}", name, open ? "(" : "[", low, high, value);
}

}  // namespace

Status SamplingParams::Validate(int64_t vocab_size) const {
  DI_RETURN_IF_ERROR(InRange("temperature", temperature, 0, 100));
  DI_RETURN_IF_ERROR(InRange("top_p", top_p, 0, 1, /*open=*/true));
  DI_RETURN_IF_ERROR(InRange("min_p", min_p, 0, 1));
  DI_RETURN_IF_ERROR(InRange("repetition_penalty", repetition_penalty, 0, 10, /*open=*/true));
  DI_RETURN_IF_ERROR(InRange("presence_penalty", presence_penalty, -2, 2));
  DI_RETURN_IF_ERROR(InRange("frequency_penalty", frequency_penalty, -2, 2));
  if (top_k < 0) return Error(Code::kInvalidArgument, "top_k: expected 0 (off) or more, found {}", top_k);
  for (const auto& [token, bias] : logit_bias) {
    if (token < 0 || token >= vocab_size) {
      return Error(Code::kInvalidArgument, "logit_bias: token {} is not in 0..{}", token, vocab_size - 1);
    }
    if (!std::isfinite(bias)) {
      return Error(Code::kInvalidArgument, "logit_bias: the bias of token {} is not a finite number", token);
    }
  }
  return Status();
}

}  // namespace deepinfer::sampling
