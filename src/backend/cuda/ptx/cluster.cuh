// SPDX-License-Identifier: Apache-2.0
// Clusters of blocks (sm_90 and later): rank, barrier, and reads of another block's shared memory.
#pragma once

#include <cstdint>

namespace deepinfer::backend::cuda::ptx {

__device__ inline int ClusterRank() {
  uint32_t rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return static_cast<int>(rank);
}
__device__ inline int ClusterSize() {
  uint32_t size;
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
  return static_cast<int>(size);
}

// All threads of all blocks of the cluster; what they wrote before is visible after.
__device__ inline void ClusterSync() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// The word at the same place of block `rank`'s shared memory.
__device__ inline int ReadOfBlock(const int* shared, int rank) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  int value;
  asm volatile(
      "{\n"
      ".reg .u32 remote;\n"
      "mapa.shared::cluster.u32 remote, %1, %2;\n"
      "ld.shared::cluster.s32 %0, [remote];\n"
      "}\n"
      : "=r"(value)
      : "r"(address), "r"(rank)
      : "memory");
  return value;
}

}  // namespace deepinfer::backend::cuda::ptx
