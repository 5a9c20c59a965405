// SPDX-License-Identifier: Apache-2.0
// Scratch memory of kernels: taken piece by piece, given back all at once by Reset. It grows to what the largest op has
// needed and is then reused, so a steady state allocates nothing. Contents are undefined. Not thread-safe: one per thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace deepinfer::backend::cpu {

class Arena {
 public:
  // A piece of n values, 64-byte aligned, valid until Reset.
  template <typename T>
  T* Take(int64_t n) {
    return static_cast<T*>(TakeBytes(static_cast<size_t>(n) * sizeof(T)));
  }
  void Reset();

 private:
  struct AlignedDelete {
    void operator()(std::byte* p) const { ::operator delete[](p, std::align_val_t{64}); }
  };
  struct Block {
    std::unique_ptr<std::byte[], AlignedDelete> data;
    size_t size;
  };

  void* TakeBytes(size_t size);
  void Grow(size_t size);

  std::vector<Block> blocks_;
  size_t used_ = 0;  // of the last block
};

}  // namespace deepinfer::backend::cpu
