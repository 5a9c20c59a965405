// SPDX-License-Identifier: Apache-2.0
// Brings weights from files to the card: some threads read pieces of matrices into pinned memory, copy them over and pack
// them there, each on a stream of its own, while the owner goes on queueing. The owner is one thread.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include <cuda_runtime_api.h>

#include "backend/cuda/load/source_file.h"

namespace deepinfer::backend::cuda {

// Some rows of a matrix: pointers into the mapping, and where they go.
struct LoadPiece {
  Matrix rows;
  std::byte* data = nullptr;   // device, or pinned host memory with to_host
  std::byte* scale = nullptr;  // the same; unused where the rows are packed into `data`
  bool pack = false;
  WeightFormat format = WeightFormat::kF32;  // with `pack`: to which
  bool to_host = false;
};

// Of rows that become `bound`. kUnimplemented: a scale that the kernels do not decode exactly; kDataLoss: a NaN among FP8 codes.
Status CheckCodes(const Matrix& rows, WeightFormat bound);
// Bytes of these rows, and of their scales.
size_t DataBytes(const Matrix& m);
size_t ScaleBytes(const Matrix& m);

class Loader {
 public:
  // Bytes of a piece, scales included, at most.
  static constexpr size_t kPieceBytes = size_t{8} << 20;

  Loader(int device, std::vector<std::unique_ptr<SourceFileReader>> files) : device_(device), files_(std::move(files)) {}
  ~Loader() { (void)Finish(); }

  Status Start();
  bool Covers(const Matrix& m) const { return FileOf(m.data) != nullptr && (m.scale == nullptr || FileOf(m.scale) != nullptr); }
  // REQUIRES: Covers the rows, and they are within kPieceBytes.
  void Queue(const LoadPiece& piece);
  // Waits for all; the first error.
  Status Finish();

  int num_threads() const { return num_threads_; }
  bool direct() const;

 private:
  struct Slot;
  SourceFileReader* FileOf(const void* data) const;
  void Work();
  Status Load(const LoadPiece& piece, Slot* slot, cudaStream_t stream);

  const int device_;
  const std::vector<std::unique_ptr<SourceFileReader>> files_;
  int num_threads_ = 0;
  std::vector<std::thread> threads_;
  std::mutex mutex_;
  std::condition_variable wakes_;
  std::deque<LoadPiece> queue_;
  bool closed_ = false;
  Status status_;
};

}  // namespace deepinfer::backend::cuda
