// SPDX-License-Identifier: Apache-2.0
// The tables of kernels that this program has, and which of them this machine can run.
#pragma once

#include <vector>

#include "backend/cpu/kernels.h"

namespace deepinfer::backend::cpu {

struct Variant {
  const Kernels* kernels;
  bool supported;
};

// Best first; the last one runs everywhere.
std::vector<Variant> AllVariants();

}  // namespace deepinfer::backend::cpu
