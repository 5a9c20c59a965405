// SPDX-License-Identifier: Apache-2.0
// What blocks of a cluster do with each other's shared memory (sm_90 and later), one instruction each. A block that has not begun, or has
// ended, has none: all meet before the first access and behind the last one.
#pragma once

#include <cstdint>

#include "backend/cuda/ptx/pipeline.cuh"

namespace deepinfer::backend::cuda::ptx {

// The two halves of a barrier of all threads of the cluster. Of what was written before, only the initialisation of barriers is
// seen behind it (FenceBarrierInit): a barrier that makes all writes visible waits for all of the thread's accesses of memory.
__device__ inline void ClusterArrive() { asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory"); }
__device__ inline void ClusterWait() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }

// The address of the same place in the shared memory of the cluster's block `rank`.
__device__ inline uint32_t RemoteAddress(uint32_t shared, int rank) {
  uint32_t remote;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(shared), "r"(rank));
  return remote;
}

// Stores to another block, whose barrier they complete by their bytes: who waits for it sees them.
__device__ inline void StoreRemote(uint32_t remote, float a, float b, uint32_t remote_barrier) {
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(remote), "f"(a), "f"(b),
               "r"(remote_barrier)
               : "memory");
}
__device__ inline void StoreRemote(uint32_t remote, uint32_t v, uint32_t remote_barrier) {
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];" ::"r"(remote), "r"(v), "r"(remote_barrier)
               : "memory");
}

// The same by the copy engine: bytes, a multiple of 16, of the own shared memory.
__device__ inline void BulkCopyRemote(uint32_t remote, uint32_t shared, uint32_t bytes, uint32_t remote_barrier) {
  asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(remote), "r"(shared),
               "r"(bytes), "r"(remote_barrier)
               : "memory");
}

}  // namespace deepinfer::backend::cuda::ptx
