// SPDX-License-Identifier: Apache-2.0
// Kernels that begin before their predecessor in the stream has ended (sm_90 and later); the host's side is launch_after.h.
#pragma once

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

}  // namespace deepinfer::backend::cuda::ptx
