// SPDX-License-Identifier: Apache-2.0
// How many lanes of a warp say that it is done with a stage of shared memory. One is enough behind an instruction of the whole warp
// that needs what all have read, or a barrier of the warp; racecheck of compute-sanitizer does not know that, and in a build for it
// all say so.
#pragma once

namespace deepinfer::backend::cuda {

#ifdef DI_CUDA_RACECHECK
inline constexpr int kReleasingLanes = 32;
#else
inline constexpr int kReleasingLanes = 1;
#endif

}  // namespace deepinfer::backend::cuda
