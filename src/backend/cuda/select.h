// SPDX-License-Identifier: Apache-2.0
// Which GPUs and drivers the kernels run on: pure host code, tested without a card.
#pragma once

#include <string>
#include <string_view>

#include "core/status.h"

namespace deepinfer::backend::cuda {

struct DeviceFacts {
  std::string name;
  int major = 0;
  int minor = 0;
  int driver = 0;  // as cudaDriverGetVersion counts: 13000 is CUDA 13.0
};

inline constexpr int kDriverMin = 13000;

// The kernel variant for the device ("sm90a"), or why there is none.
Result<std::string_view> ChooseVariant(const DeviceFacts& device);

}  // namespace deepinfer::backend::cuda
