// SPDX-License-Identifier: Apache-2.0
// The backend for NVIDIA data-centre GPUs: Hopper (sm_90a); sm_100a is compiled too. Other GPUs and old drivers are
// refused when the backend is made, with a message that says what was found and what is needed.
// One stream per backend; see backend/api/backend.h for threads, queues and errors. In a build without CUDA
// (-DDI_CUDA=OFF) CreateCuda returns kUnimplemented.
#pragma once

#include <memory>

#include "backend/api/backend.h"

namespace deepinfer::backend {

struct CudaOptions {
  int device = 0;  // as numbered by the driver (CUDA_VISIBLE_DEVICES applies)
  bool tables_on_host = true;  // Engram tables in pinned host memory, gathered by the device; false: on the device
  // FP8 and FP4 matrices of at least so many columns are multiplied as FP8 where inputs are (docs/kernels/cuda.md). Tests lower it.
  int64_t aligned_cols_min = 1024;
};

// kUnavailable: no driver or no such device; kUnimplemented: a GPU or driver that the kernels are not built for.
Result<std::unique_ptr<Backend>> CreateCuda(const CudaOptions& options);

}  // namespace deepinfer::backend
