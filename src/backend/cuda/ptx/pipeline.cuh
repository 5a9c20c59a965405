// SPDX-License-Identifier: Apache-2.0
// Barriers in shared memory and bulk copies that complete on them (sm_90 and later), one instruction each.
#pragma once

#include <cstdint>

namespace deepinfer::backend::cuda::ptx {

__device__ inline uint32_t SharedAddress(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// Barriers are given by their pointer, or by their address in shared memory: the latter where a loop uses many, since a pointer
// may be turned into an address anew at each use.
__device__ inline void BarrierInit(uint32_t barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
__device__ inline void BarrierInit(uint64_t* barrier, uint32_t arrivals) { BarrierInit(SharedAddress(barrier), arrivals); }

// Makes barrier initialisation visible to the copy engine.
__device__ inline void FenceBarrierInit() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

__device__ inline void BarrierArrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ inline void BarrierArrive(uint64_t* barrier) { BarrierArrive(SharedAddress(barrier)); }

// Arrives, and announces bytes that bulk copies will complete.
__device__ inline void BarrierArriveExpect(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
__device__ inline void BarrierArriveExpect(uint64_t* barrier, uint32_t bytes) { BarrierArriveExpect(SharedAddress(barrier), bytes); }

// Returns when the phase with this parity is over.
__device__ inline void BarrierWait(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra finished;\n"
      "bra again;\n"
      "finished:\n"
      "}\n" ::"r"(barrier),
      "r"(parity)
      : "memory");
}
__device__ inline void BarrierWait(uint64_t* barrier, uint32_t parity) { BarrierWait(SharedAddress(barrier), parity); }

// The same; the result is 0, which the compiler does not know: what is computed with it stays behind the wait.
__device__ inline uint32_t BarrierWaitZero(uint64_t* barrier, uint32_t parity) {
  uint32_t zero;
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2;\n"
      "selp.u32 %0, 0, 1, done;\n"
      "@!done bra again;\n"
      "}\n"
      : "=r"(zero)
      : "r"(SharedAddress(barrier)), "r"(parity)
      : "memory");
  return zero;
}

// Copies bytes (a multiple of 16, both addresses 16-byte aligned) from global to shared memory.
__device__ inline void BulkCopy(uint32_t shared, const void* global, uint32_t bytes, uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared), "l"(global),
               "r"(bytes), "r"(barrier)
               : "memory");
}
__device__ inline void BulkCopy(void* shared, const void* global, uint32_t bytes, uint64_t* barrier) {
  BulkCopy(SharedAddress(shared), global, bytes, SharedAddress(barrier));
}

// Copies four bytes from global to shared memory without waiting; WaitForCopies waits for all that the thread began.
__device__ inline void CopyWord(void* shared, const void* global) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(SharedAddress(shared)), "l"(global) : "memory");
}
__device__ inline void CopyWord(void* shared, const void* global, int bytes) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(SharedAddress(shared)), "l"(global), "r"(bytes) : "memory");
}
// The same with 16 bytes, of which the first `bytes` are read and the rest are zeros; copies are counted in groups.
__device__ inline void CopyUnit(void* shared, const void* global, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(SharedAddress(shared)), "l"(global), "r"(bytes) : "memory");
}
__device__ inline void CopyUnit(uint32_t shared, const void* global) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared), "l"(global) : "memory");
}
// Arrives, without waiting, when all copies that the thread has begun by cp.async are there; one of the barrier's expected arrivals.
__device__ inline void BarrierArriveBehindCopies(uint64_t* barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(SharedAddress(barrier)) : "memory");
}
__device__ inline void EndCopyGroup() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits for all groups but the last kPending.
template <int kPending>
__device__ inline void WaitForCopyGroups() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}
__device__ inline void WaitForCopies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// Loads of what is read once and not written meanwhile: the first-level cache keeps nothing of it.
__device__ inline void LoadOnce(const void* global, uint32_t* four) {
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(four[0]), "=r"(four[1]), "=r"(four[2]), "=r"(four[3])
               : "l"(global));
}
__device__ inline uint32_t LoadWordOnce(const void* global) {
  uint32_t word;
  asm volatile("ld.global.nc.L1::no_allocate.u32 %0, [%1];" : "=r"(word) : "l"(global));
  return word;
}
// The same under a predicate instead of a branch, behind which they would be waited for; zeros where it does not hold.
__device__ inline void LoadOnceIf(bool is_there, const void* global, uint32_t (&four)[4]) {
  asm volatile(
      "{\n"
      ".reg .pred there;\n"
      "setp.ne.b32 there, %5, 0;\n"
      "mov.u32 %0, 0;\n"
      "mov.u32 %1, 0;\n"
      "mov.u32 %2, 0;\n"
      "mov.u32 %3, 0;\n"
      "@there ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];\n"
      "}\n"
      : "=&r"(four[0]), "=&r"(four[1]), "=&r"(four[2]), "=&r"(four[3])
      : "l"(global), "r"(static_cast<uint32_t>(is_there)));
}
__device__ inline void LoadWordOnceIf(bool is_there, const void* global, uint32_t& word) {
  asm volatile(
      "{\n"
      ".reg .pred there;\n"
      "setp.ne.b32 there, %2, 0;\n"
      "mov.u32 %0, 0;\n"
      "@there ld.global.nc.L1::no_allocate.u32 %0, [%1];\n"
      "}\n"
      : "=&r"(word)
      : "l"(global), "r"(static_cast<uint32_t>(is_there)));
}
// The same for what nothing reads again: first to leave the second-level cache.
__device__ inline float4 LoadStreamed(const float* global) {
  float4 v;
  asm volatile("ld.global.cs.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(global));
  return v;
}
__device__ inline void StoreStreamed(float* global, const float4& v) {
  asm volatile("st.global.cs.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(global), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w) : "memory");
}
__device__ inline void LoadShared(const void* shared, uint32_t* four) {
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(four[0]), "=r"(four[1]), "=r"(four[2]), "=r"(four[3])
               : "r"(SharedAddress(shared)));
}
__device__ inline void StoreShared(uint32_t address, const uint4& v) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}
__device__ inline void StoreShared(uint32_t address, const uint2& v) {
  asm volatile("st.shared.v2.u32 [%0], {%1, %2};" ::"r"(address), "r"(v.x), "r"(v.y) : "memory");
}
// Loads of shared memory that stay behind the barrier they were written behind.
__device__ inline uint4 LoadShared4(uint32_t address) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(address) : "memory");
  return v;
}
__device__ inline uint2 LoadShared2(uint32_t address) {
  uint2 v;
  asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(address) : "memory");
  return v;
}
__device__ inline uint32_t LoadShared16(uint32_t address) {
  uint16_t v;
  asm volatile("ld.shared.u16 %0, [%1];" : "=h"(v) : "r"(address) : "memory");
  return v;
}
__device__ inline float LoadShared(uint32_t address) {
  float v;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(v) : "r"(address) : "memory");
  return v;
}
__device__ inline void StoreShared(uint32_t address, float v) {
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(address), "f"(v) : "memory");
}
// Into the second-level cache.
__device__ inline void Prefetch(const void* global) { asm volatile("prefetch.global.L2 [%0];" ::"l"(global)); }

// Makes this thread's ordinary writes to shared memory visible to the tensor cores and the copy engine; a barrier follows.
__device__ inline void FenceAsyncShared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// A barrier of `threads` threads of the block, whole warps; barrier 0 is __syncthreads. Without `.aligned`, since warps of different roles
// meet at it by instructions of their own.
__device__ inline void SyncThreads(int barrier, int threads) {
  asm volatile("barrier.cta.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
// The same for warps that come by the same instruction; returns whether `value` is true for all threads.
__device__ inline bool SyncThreadsAnd(int barrier, int threads, bool value) {
  uint32_t all;
  asm volatile(
      "{\n"
      ".reg .pred mine, all;\n"
      "setp.ne.u32 mine, %3, 0;\n"
      "barrier.cta.red.and.aligned.pred all, %1, %2, mine;\n"
      "selp.u32 %0, 1, 0, all;\n"
      "}\n"
      : "=r"(all)
      : "r"(barrier), "r"(threads), "r"(static_cast<uint32_t>(value))
      : "memory");
  return all != 0;
}

// Arrives at such a barrier without waiting; others wait with SyncThreads. `threads` counts both kinds.
__device__ inline void ArriveThreads(int barrier, int threads) {
  asm volatile("barrier.cta.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

// Gives registers of the calling warpgroup back, or takes more; the whole warpgroup calls.
template <int kRegisters>
__device__ inline void ReleaseRegisters() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ inline void TakeRegisters() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

}  // namespace deepinfer::backend::cuda::ptx
