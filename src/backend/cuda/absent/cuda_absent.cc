// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/cuda_backend.h"

namespace deepinfer::backend {

Result<std::unique_ptr<Backend>> CreateCuda(const CudaOptions&) {
  return Error(Code::kUnimplemented, "this build has no CUDA backend: configure with -DDI_CUDA=ON where nvcc 13 is installed");
}

}  // namespace deepinfer::backend
