// SPDX-License-Identifier: Apache-2.0
// The fixed fp32 functions (numeric/fixed_math.h) under the names of this module.
#pragma once

#include "numeric/fixed_math.h"

namespace deepinfer::sampling {

using numeric::FixedExp;
using numeric::FixedLog;
using numeric::FixedLog1m;

}  // namespace deepinfer::sampling
