// SPDX-License-Identifier: Apache-2.0
// Copies from host to device that do not wait: the bytes go through a ring of pinned pieces, so the caller's memory is free
// at once and the stream keeps running. Only a ring that is full of copies under way makes the caller wait.
// One per stream, one thread at a time.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>

namespace deepinfer::backend::cuda {

class Uploads {
 public:
  Uploads() = default;
  ~Uploads();
  Uploads(const Uploads&) = delete;
  Uploads& operator=(const Uploads&) = delete;

  cudaError_t Copy(void* device, const void* host, size_t size_bytes, cudaStream_t stream);

 private:
  static constexpr size_t kPieceBytes = size_t{1} << 20;

  struct Piece {
    std::byte* data = nullptr;
    cudaEvent_t copied = nullptr;  // all that lay in it is on the device
  };
  cudaError_t NextPiece(cudaStream_t stream);

  std::array<Piece, 8> pieces_;
  size_t current_ = 0;
  size_t used_bytes_ = kPieceBytes;  // of the current piece
};

}  // namespace deepinfer::backend::cuda
