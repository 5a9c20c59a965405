// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/variants.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace deepinfer::backend::cpu {
namespace {

#if defined(__x86_64__)
// Not among the names that clang 14 knows for __builtin_cpu_supports.
bool HasF16c() {
  unsigned a, b, c, d;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}
#endif

}  // namespace

std::vector<Variant> AllVariants() {
  std::vector<Variant> all;
#if defined(__x86_64__)
  // The built-in function also asks whether the operating system saves the registers.
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && HasF16c();
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vbmi");
  all.push_back({&kAvx512Kernels, avx512});
  all.push_back({&kAvx2Kernels, avx2});
#endif
  all.push_back({&kPortableKernels, true});
  return all;
}

}  // namespace deepinfer::backend::cpu
