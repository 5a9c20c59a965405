// SPDX-License-Identifier: Apache-2.0
// Copies from device to host that do not wait: small ones go through a pinned piece, from where Finish brings them to their
// places once the stream is done. Those that do not fit go straight to pageable memory, for which the driver makes the caller
// wait. One per stream, one thread at a time.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <vector>

namespace deepinfer::backend::cuda {

class Downloads {
 public:
  Downloads() = default;
  ~Downloads() {
    if (pinned_ != nullptr) cudaFreeHost(pinned_);
  }
  Downloads(const Downloads&) = delete;
  Downloads& operator=(const Downloads&) = delete;

  cudaError_t Copy(void* host, const void* device, size_t size_bytes, cudaStream_t stream);
  // REQUIRES: the stream has run dry.
  void Finish();

 private:
  static constexpr size_t kPieceBytes = size_t{1} << 20;

  struct Waiting {
    void* host;
    const std::byte* pinned;
    size_t size_bytes;
  };
  std::byte* pinned_ = nullptr;
  size_t used_bytes_ = 0;
  std::vector<Waiting> waiting_;
};

}  // namespace deepinfer::backend::cuda
