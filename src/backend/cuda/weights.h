// SPDX-License-Identifier: Apache-2.0
// The weights on the device: matrices in the layout of the kernels (linear/packed.h), and tables that rows are gathered
// from, which may stay in pinned host memory. Owns their memory until it is destroyed. One thread at a time.
//
// Between Begin and End, matrices that lie in the files given are loaded by threads of their own (load/loader.h): what Bind
// returns is an address whose content is there after End.
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <vector>

#include "backend/api/backend.h"
#include "backend/cuda/context.h"
#include "backend/cuda/load/loader.h"

namespace deepinfer::backend::cuda {

class Weights {
 public:
  explicit Weights(Context& context, bool tables_on_host = false, int64_t aligned_cols_min = 1024)
      : context_(context), tables_on_host_(tables_on_host), aligned_cols_min_(aligned_cols_min) {}
  ~Weights();
  Weights(const Weights&) = delete;
  Weights& operator=(const Weights&) = delete;

  Status Begin(std::span<const SourceFile> files);
  Result<BindStats> End();

  // Copies a matrix of host memory to the device. Outside of files the host memory may be reused when this returns.
  // kResourceExhausted: the device is full; kUnimplemented: scales outside what the kernels decode exactly; kDataLoss:
  // FP8 codes that are no numbers. For ops that round their inputs as `activations` says.
  Result<Matrix> Bind(const Matrix& host, Activations activations);
  // The same for a row-major table, which with tables_on_host stays in host memory that the device reads.
  // kResourceExhausted: so much memory cannot be pinned.
  Result<Matrix> BindTable(const Matrix& host);

  size_t device_bytes() const { return device_bytes_; }
  size_t host_bytes() const { return host_bytes_; }

 private:
  Result<std::byte*> Allocate(size_t size_bytes);
  Result<std::byte*> AllocateHost(size_t size_bytes);
  void QueuePieces(const Matrix& host, const Matrix& bound, bool to_host);
  Result<Matrix> UploadRows(const Matrix& host);
  Status PackNow(const Matrix& host, const Matrix& bound);
  Status CopyRows(const Matrix& host, const Matrix& bound);

  Context& context_;
  const bool tables_on_host_;
  const int64_t aligned_cols_min_;
  std::vector<void*> owned_, owned_host_;
  // Matrices share larger allocations.
  std::byte* slab_ = nullptr;
  size_t slab_left_ = 0, slab_next_bytes_ = size_t{1} << 20;
  size_t device_bytes_ = 0, host_bytes_ = 0;
  std::unique_ptr<Loader> loader_;
  std::chrono::steady_clock::time_point begin_;
  BindStats stats_;
};

}  // namespace deepinfer::backend::cuda
