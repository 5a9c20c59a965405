// SPDX-License-Identifier: Apache-2.0
// Kernels that begin before their predecessor in the stream has ended (sm_90 and later); the host's side is launch_after.h.
#pragma once

#include <cstdint>

namespace deepinfer::backend::cuda::ptx {

// Waits until the kernels before in the stream are over and their writes visible; at once where the kernel was launched as usual.
__device__ inline void GridWait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

// The next kernel in the stream may be started as soon as every block has said so, or ended.
__device__ inline void GridTrigger() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

// Both, where a kernel has nothing to do before.
__device__ inline void GridBegin() {
  GridTrigger();
  GridWait();
}

// A word that another block of the running kernel stores and this one waits for: all of it is seen, or nothing.
__device__ inline void StoreWord(uint64_t* word, uint64_t value) {
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}
__device__ inline uint64_t LoadWord(const uint64_t* word) {
  uint64_t value;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
  return value;
}

}  // namespace deepinfer::backend::cuda::ptx
