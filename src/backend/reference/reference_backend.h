// SPDX-License-Identifier: Apache-2.0
// The yardstick: every op as plain loops over one row at a time, sums and norms in float64, values between ops stored in
// fp32. It is never tuned. Every other backend is compared with it, and it must itself meet the golden vectors.
// Single-threaded; device memory is ordinary memory.
#pragma once

#include <memory>

#include "backend/api/backend.h"

namespace deepinfer::backend {

std::unique_ptr<Backend> CreateReference();

}  // namespace deepinfer::backend
