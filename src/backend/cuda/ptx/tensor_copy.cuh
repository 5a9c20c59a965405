// SPDX-License-Identifier: Apache-2.0
// Copies of boxes of an array by its map (device/tensor_map.h), which complete on a barrier as bulk copies do; sm_90 and later.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace deepinfer::backend::cuda::ptx {

// `at`: the box's first element, innermost dimension first. What lies outside of the array becomes zeros, and counts as copied.
__device__ inline void CopyBox(uint32_t shared, const CUtensorMap& map, const int (&at)[3], uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::"r"(shared),
      "l"(&map), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(barrier)
      : "memory");
}

}  // namespace deepinfer::backend::cuda::ptx
