// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/downloads.h"

#include <algorithm>
#include <cstring>

namespace deepinfer::backend::cuda {

cudaError_t Downloads::Copy(void* host, const void* device, size_t size_bytes, cudaStream_t stream) {
  constexpr size_t kAlignment = 256;
  if (pinned_ == nullptr) {
    void* data = nullptr;
    if (const cudaError_t error = cudaHostAlloc(&data, kPieceBytes, cudaHostAllocDefault); error != cudaSuccess) return error;
    pinned_ = static_cast<std::byte*>(data);
  }
  if (size_bytes > kPieceBytes - used_bytes_) return cudaMemcpyAsync(host, device, size_bytes, cudaMemcpyDeviceToHost, stream);
  std::byte* pinned = pinned_ + used_bytes_;
  used_bytes_ = std::min(kPieceBytes, used_bytes_ + (size_bytes + kAlignment - 1) / kAlignment * kAlignment);
  waiting_.push_back({host, pinned, size_bytes});
  return cudaMemcpyAsync(pinned, device, size_bytes, cudaMemcpyDeviceToHost, stream);
}

void Downloads::Finish() {
  for (const Waiting& copy : waiting_) std::memcpy(copy.host, copy.pinned, copy.size_bytes);
  waiting_.clear();
  used_bytes_ = 0;
}

}  // namespace deepinfer::backend::cuda
