// SPDX-License-Identifier: Apache-2.0
// The backend for CPUs: vector kernels chosen at run time by what the processor can do, a pool of threads, weights used
// where the checkpoint is mapped. Device memory is ordinary memory. Ops are done when they return.
// Bits of a row depend on the variant, and on nothing else: not on the batch, not on the number of threads
// (docs/kernels/cpu.md). Thread safety as in backend/api/backend.h.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backend/api/backend.h"

namespace deepinfer::backend {

struct CpuOptions {
  int num_threads = 0;  // 0: every core that this process may use; at most kCpuThreadsMax
  std::string variant;  // "avx512", "avx2" or "portable"; empty: the best that the machine has
};

inline constexpr int kCpuThreadsMax = 1024;

// The variants that this machine can run, best first. "portable" is always there.
std::vector<std::string_view> CpuVariants();

// kInvalidArgument: a number of threads outside 0..kCpuThreadsMax, or a variant that does not exist or that this machine lacks.
Result<std::unique_ptr<Backend>> CreateCpu(const CpuOptions& options = {});

}  // namespace deepinfer::backend
