// SPDX-License-Identifier: Apache-2.0
// The weights on the device: matrices in the layout of the kernels (linear/packed.h). Owns their memory until it is
// destroyed. One thread at a time.
#pragma once

#include <vector>

#include "backend/api/types.h"
#include "backend/cuda/context.h"
#include "core/status.h"

namespace deepinfer::backend::cuda {

class Weights {
 public:
  explicit Weights(Context& context) : context_(context) {}
  ~Weights();
  Weights(const Weights&) = delete;
  Weights& operator=(const Weights&) = delete;

  // Copies a matrix of host memory to the device. The host memory may be reused when this returns.
  // kResourceExhausted: the device is full; kUnimplemented: scales outside what the kernels decode exactly.
  Result<Matrix> Bind(const Matrix& host);

 private:
  Result<void*> Allocate(size_t size_bytes);
  Result<Matrix> Upload(const Matrix& host);

  Context& context_;
  std::vector<void*> owned_;
};

}  // namespace deepinfer::backend::cuda
