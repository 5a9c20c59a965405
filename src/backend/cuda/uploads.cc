// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/uploads.h"

#include <algorithm>
#include <cstring>

namespace deepinfer::backend::cuda {

Uploads::~Uploads() {
  for (Piece& piece : pieces_) {
    if (piece.copied != nullptr) cudaEventDestroy(piece.copied);
    if (piece.data != nullptr) cudaFreeHost(piece.data);
  }
}

cudaError_t Uploads::NextPiece(cudaStream_t stream) {
  if (Piece& full = pieces_[current_]; full.data != nullptr) {
    if (const cudaError_t error = cudaEventRecord(full.copied, stream); error != cudaSuccess) return error;
  }
  current_ = (current_ + 1) % pieces_.size();
  used_bytes_ = 0;
  Piece& next = pieces_[current_];
  if (next.data != nullptr) return cudaEventSynchronize(next.copied);
  void* data = nullptr;
  if (const cudaError_t error = cudaHostAlloc(&data, kPieceBytes, cudaHostAllocDefault); error != cudaSuccess) return error;
  next.data = static_cast<std::byte*>(data);
  return cudaEventCreateWithFlags(&next.copied, cudaEventDisableTiming);
}

cudaError_t Uploads::Copy(void* device, const void* host, size_t size_bytes, cudaStream_t stream) {
  constexpr size_t kAlignment = 256;
  for (size_t done = 0; done < size_bytes;) {
    if (used_bytes_ >= kPieceBytes) {
      if (const cudaError_t error = NextPiece(stream); error != cudaSuccess) {
        used_bytes_ = kPieceBytes;
        return error;
      }
    }
    const size_t part = std::min(size_bytes - done, kPieceBytes - used_bytes_);
    std::byte* pinned = pieces_[current_].data + used_bytes_;
    std::memcpy(pinned, static_cast<const std::byte*>(host) + done, part);
    const cudaError_t error =
        cudaMemcpyAsync(static_cast<std::byte*>(device) + done, pinned, part, cudaMemcpyHostToDevice, stream);
    if (error != cudaSuccess) return error;
    done += part;
    used_bytes_ += (part + kAlignment - 1) / kAlignment * kAlignment;
  }
  return cudaSuccess;
}

}  // namespace deepinfer::backend::cuda
