// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/weights.h"

#include <algorithm>

#include "backend/cuda/linear/pack.h"
#include "backend/cuda/linear/packed.h"

namespace deepinfer::backend::cuda {
namespace {

size_t ScaleBytes(const Matrix& m) {
  if (m.scale == nullptr) return 0;
  const int64_t rows = m.format == WeightFormat::kFp8Tile32 ? m.rows / 32 : m.rows;
  return static_cast<size_t>(rows * (m.cols / 32));
}

// The kernels multiply the code's bits by 2^(scale + bias) in bf16, which is exact as long as that is finite.
Status CheckScales(const Matrix& m) {
  const size_t n = ScaleBytes(m);
  if (n == 0) return Status();
  const int largest = *std::max_element(m.scale, m.scale + n);
  if (largest <= ScaleCodeMax(m.format)) return Status();
  return Error(Code::kUnimplemented, "CUDA: a weight scale of 2^{} (e8m0 code {}) in a matrix of {} x {}; at most 2^{} is decoded exactly",
               largest - 127, largest, m.rows, m.cols, ScaleCodeMax(m.format) - 127);
}

}  // namespace

Weights::~Weights() {
  for (void* data : owned_) cudaFree(data);
}

Result<void*> Weights::Allocate(size_t size_bytes) {
  void* data = nullptr;
  const cudaError_t error = cudaMalloc(&data, std::max<size_t>(size_bytes, 1));
  if (error != cudaSuccess) {
    return Error(Code::kResourceExhausted, "CUDA device {}: no memory for {} bytes of weights: {}", context_.device(), size_bytes,
                 cudaGetErrorString(error));
  }
  owned_.push_back(data);
  return data;
}

Result<Matrix> Weights::Upload(const Matrix& host) {
  const size_t data_bytes = static_cast<size_t>(host.rows) * MatrixRowBytes(host), scale_bytes = ScaleBytes(host);
  Matrix device = host;
  DI_ASSIGN_OR_RETURN(void* data, Allocate(data_bytes));
  context_.Record(cudaMemcpyAsync(data, host.data, data_bytes, cudaMemcpyHostToDevice, context_.stream()), "copying weights");
  device.data = data;
  if (scale_bytes > 0) {
    DI_ASSIGN_OR_RETURN(void* scale, Allocate(scale_bytes));
    context_.Record(cudaMemcpyAsync(scale, host.scale, scale_bytes, cudaMemcpyHostToDevice, context_.stream()), "copying weights");
    device.scale = static_cast<const uint8_t*>(scale);
  }
  return device;
}

Result<Matrix> Weights::Bind(const Matrix& host) {
  context_.Enter();
  if (IsPacked(host.format)) DI_RETURN_IF_ERROR(CheckScales(host));
  const size_t owned_before = owned_.size();
  DI_ASSIGN_OR_RETURN(Matrix device, Upload(host));
  if (IsPacked(host.format)) {
    const Matrix row_major = device;
    DI_ASSIGN_OR_RETURN(void* packed, Allocate(static_cast<size_t>(PackedBytes(host))));
    Pack(context_.stream(), row_major, packed);
    context_.Record(cudaGetLastError(), "packing weights");
    device.data = packed;  // the scales lie in the chunks; device.scale keeps telling that there are some
    for (size_t i = owned_before; i + 1 < owned_.size(); ++i) context_.Record(cudaFree(owned_[i]), "freeing staged weights");
    owned_.erase(owned_.begin() + static_cast<std::ptrdiff_t>(owned_before), owned_.end() - 1);
    if (device.scale != nullptr) device.scale = static_cast<const uint8_t*>(packed);
  }
  context_.Record(cudaStreamSynchronize(context_.stream()), "copying weights");
  DI_RETURN_IF_ERROR(context_.TakeError());
  return device;
}

}  // namespace deepinfer::backend::cuda
