// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/context.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/status.h"

namespace deepinfer::backend::cuda {
namespace {

constexpr size_t kAlignment = 1024;
constexpr size_t kFirstChunkBytes = size_t{32} << 20;

}  // namespace

Context::~Context() {
  if (stream_ != nullptr) cudaStreamSynchronize(stream_);
  for (const Chunk& chunk : chunks_) cudaFree(chunk.data);
  for (const Chunk& chunk : outgrown_) cudaFree(chunk.data);
  for (const auto& [addresses, table] : tables_) cudaFree(table);
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
}

Status Context::Init() {
  Enter();
  Record(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "creating a stream");
  Record(cudaDeviceGetAttribute(&num_sms_, cudaDevAttrMultiProcessorCount, device_), "reading the device");
  return TakeError();
}

void Context::Record(cudaError_t error, const char* what) {
  if (error == cudaSuccess || error_ != cudaSuccess) return;
  error_ = error;
  error_what_ = what;
}

Status Context::TakeError() {
  const cudaError_t error = std::exchange(error_, cudaSuccess);
  if (error == cudaSuccess) return Status();
  const Code code = error == cudaErrorMemoryAllocation ? Code::kResourceExhausted : Code::kInternal;
  return Error(code, "CUDA device {}: {}: {}", device_, error_what_, cudaGetErrorString(error));
}

int64_t Context::NowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void Context::BeginOp() {
  Enter();
  used_bytes_ = 0;
  if (chunks_.size() <= 1) return;
  // The last op outgrew the chunk: from now on one chunk holds as much as it took.
  Record(cudaStreamSynchronize(stream_), "waiting for the scratch memory");
  size_t total = 0;
  for (const Chunk& chunk : chunks_) {
    total += chunk.size_bytes;
    if (num_graphs_ > 0) {
      outgrown_.push_back(chunk);
      continue;
    }
    Record(cudaFree(chunk.data), "freeing scratch memory");
    scratch_bytes_ -= chunk.size_bytes;
  }
  chunks_.clear();
  void* data = nullptr;
  const cudaError_t error = cudaMalloc(&data, total);
  Record(error, "allocating scratch memory");
  if (error != cudaSuccess) return;
  chunks_.push_back({static_cast<char*>(data), total});
  scratch_bytes_ += total;
}

void* Context::TakeBytes(size_t size_bytes) {
  const size_t rounded = (std::max<size_t>(size_bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
  if (chunks_.empty() || chunks_.back().size_bytes - used_bytes_ < rounded) {
    void* data = nullptr;
    const size_t chunk_bytes = std::max(rounded, kFirstChunkBytes);
    const cudaError_t error = cudaMalloc(&data, chunk_bytes);
    Record(error, "allocating scratch memory");
    if (error != cudaSuccess) return nullptr;
    chunks_.push_back({static_cast<char*>(data), chunk_bytes});
    scratch_bytes_ += chunk_bytes;
    used_bytes_ = 0;
  }
  void* result = chunks_.back().data + used_bytes_;
  used_bytes_ += rounded;
  return result;
}

const void* Context::DeviceTable(std::vector<const void*> addresses) {
  if (const auto found = tables_.find(addresses); found != tables_.end()) return found->second;
  void* table = nullptr;
  const size_t size_bytes = addresses.size() * sizeof(void*);
  const cudaError_t error = cudaMalloc(&table, size_bytes);
  Record(error, "allocating a table of weights");
  if (error != cudaSuccess) return nullptr;
  const auto kept = tables_.emplace(std::move(addresses), table).first;
  Upload(table, kept->first.data(), size_bytes);
  return table;
}

}  // namespace deepinfer::backend::cuda
