// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/weights.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "backend/cuda/linear/pack.h"
#include "backend/cuda/linear/packed.h"

namespace deepinfer::backend::cuda {
namespace {

constexpr size_t kAlignment = 1024, kSlabBytesMax = size_t{256} << 20;

// Rows of a piece: whole tiles, at least one. 0: not even one fits.
int64_t PieceRows(const Matrix& m) {
  const size_t scales = m.scale == nullptr ? 0 : static_cast<size_t>(m.cols / 32);
  const auto rows = static_cast<int64_t>(Loader::kPieceBytes / (MatrixRowBytes(m) + scales));
  return rows / kTileRows * kTileRows;
}

}  // namespace

Weights::~Weights() {
  loader_.reset();
  for (void* data : owned_) cudaFree(data);
  for (void* data : owned_host_) cudaFreeHost(data);
}

Status Weights::Begin(std::span<const SourceFile> files) {
  begin_ = std::chrono::steady_clock::now();
  stats_ = {};
  std::vector<std::unique_ptr<SourceFileReader>> readers;
  for (const SourceFile& file : files) {
    DI_ASSIGN_OR_RETURN(std::unique_ptr<SourceFileReader> reader, SourceFileReader::Open(file));
    readers.push_back(std::move(reader));
  }
  loader_ = std::make_unique<Loader>(context_.device(), std::move(readers));
  return loader_->Start();
}

Result<BindStats> Weights::End() {
  if (loader_ == nullptr) return stats_;
  const Status status = loader_->Finish();
  stats_.threads = loader_->num_threads();
  stats_.direct = loader_->direct();
  loader_.reset();
  DI_RETURN_IF_ERROR(status);
  context_.Enter();
  context_.Record(cudaStreamSynchronize(context_.stream()), "copying weights");
  DI_RETURN_IF_ERROR(context_.TakeError());
  stats_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  return stats_;
}

Result<std::byte*> Weights::Allocate(size_t size_bytes) {
  size_bytes = (std::max<size_t>(size_bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
  if (slab_left_ < size_bytes) {
    const bool alone = size_bytes > slab_next_bytes_ / 4;
    const size_t bytes = alone ? size_bytes : slab_next_bytes_;
    void* data = nullptr;
    const cudaError_t error = cudaMalloc(&data, bytes);
    if (error != cudaSuccess) {
      (void)cudaGetLastError();
      return Error(Code::kResourceExhausted, "CUDA device {}: no memory for {} bytes of weights, after {} bytes of them: {}",
                   context_.device(), size_bytes, device_bytes_, cudaGetErrorString(error));
    }
    owned_.push_back(data);
    device_bytes_ += bytes;
    slab_next_bytes_ = std::clamp(device_bytes_, slab_next_bytes_, kSlabBytesMax);
    if (alone) return static_cast<std::byte*>(data);
    slab_ = static_cast<std::byte*>(data);
    slab_left_ = bytes;
  }
  slab_left_ -= size_bytes;
  return std::exchange(slab_, slab_ + size_bytes);
}

Result<std::byte*> Weights::AllocateHost(size_t size_bytes) {
  void* data = nullptr;
  const cudaError_t error = cudaHostAlloc(&data, std::max<size_t>(size_bytes, 1), cudaHostAllocPortable | cudaHostAllocMapped);
  if (error != cudaSuccess) {
    (void)cudaGetLastError();
    return Error(Code::kResourceExhausted,
                 "CUDA: {} bytes of host memory for an Engram table cannot be pinned ({}): free some, or let the tables lie on "
                 "the device (--engram-tables=device)",
                 size_bytes, cudaGetErrorString(error));
  }
  owned_host_.push_back(data);
  host_bytes_ += size_bytes;
  return static_cast<std::byte*>(data);
}

void Weights::QueuePieces(const Matrix& host, const Matrix& bound, bool to_host) {
  const bool pack = IsPacked(bound.format);
  const int64_t step = PieceRows(host), scale_ratio = host.format == WeightFormat::kFp8Tile32 ? 32 : 1;
  auto* data = static_cast<std::byte*>(const_cast<void*>(bound.data));
  auto* scale = reinterpret_cast<std::byte*>(const_cast<uint8_t*>(bound.scale));
  for (int64_t row = 0; row < host.rows; row += step) {
    LoadPiece piece{.rows = host, .data = data, .pack = pack, .format = bound.format, .to_host = to_host};
    piece.rows.rows = std::min(step, host.rows - row);
    piece.rows.data = static_cast<const std::byte*>(host.data) + static_cast<size_t>(row) * MatrixRowBytes(host);
    const int64_t scale_at = row / scale_ratio * (host.cols / 32);
    if (host.scale != nullptr) piece.rows.scale = host.scale + scale_at;
    piece.data += pack ? row / kTileRows * TileBytes(bound.format, host.cols) : row * static_cast<int64_t>(MatrixRowBytes(host));
    if (!pack && scale != nullptr) piece.scale = scale + scale_at;
    stats_.bytes += static_cast<int64_t>(DataBytes(piece.rows) + ScaleBytes(piece.rows));
    loader_->Queue(piece);
  }
}

Status Weights::CopyRows(const Matrix& host, const Matrix& bound) {
  context_.Upload(const_cast<void*>(bound.data), host.data, DataBytes(host));
  if (host.scale != nullptr) context_.Upload(const_cast<uint8_t*>(bound.scale), host.scale, ScaleBytes(host));
  return context_.TakeError();
}

Status Weights::PackNow(const Matrix& host, const Matrix& bound) {
  void* staged = nullptr;
  const size_t data_bytes = (DataBytes(host) + kAlignment - 1) / kAlignment * kAlignment;
  context_.Record(cudaMalloc(&staged, data_bytes + ScaleBytes(host)), "allocating staged weights");
  DI_RETURN_IF_ERROR(context_.TakeError());
  Matrix rows = host;
  rows.data = staged;
  if (host.scale != nullptr) rows.scale = static_cast<const uint8_t*>(staged) + data_bytes;
  Status status = CopyRows(host, rows);
  if (status.ok()) {
    Pack(context_.stream(), rows, bound.format, const_cast<void*>(bound.data));
    context_.Record(cudaGetLastError(), "packing weights");
  }
  context_.Record(cudaFree(staged), "freeing staged weights");  // waits
  return status.ok() ? context_.TakeError() : status;
}

Result<Matrix> Weights::UploadRows(const Matrix& host) {
  Matrix bound = host;
  DI_ASSIGN_OR_RETURN(bound.data, Allocate(DataBytes(host)));
  if (host.scale != nullptr) {
    DI_ASSIGN_OR_RETURN(std::byte* scale, Allocate(ScaleBytes(host)));
    bound.scale = reinterpret_cast<const uint8_t*>(scale);
  }
  return bound;
}

Result<Matrix> Weights::Bind(const Matrix& host, Activations activations) {
  context_.Enter();
  const WeightFormat format = BoundFormat(host, activations, aligned_cols_min_);
  const bool pack = IsPacked(format), from_file = loader_ != nullptr && loader_->Covers(host) && PieceRows(host) > 0;
  Matrix bound = host;
  if (pack) {
    DI_ASSIGN_OR_RETURN(std::byte* packed, Allocate(static_cast<size_t>(PackedBytes(format, host.rows, host.cols))));
    bound.format = format;
    bound.data = packed;  // the scales lie in the chunks; bound.scale keeps telling that there are some
    if (host.scale != nullptr) bound.scale = reinterpret_cast<const uint8_t*>(packed);
  } else {
    DI_ASSIGN_OR_RETURN(bound, UploadRows(host));
  }
  if (from_file) {
    QueuePieces(host, bound, /*to_host=*/false);
    return bound;
  }
  DI_RETURN_IF_ERROR(CheckCodes(host, format));
  if (pack) {
    DI_RETURN_IF_ERROR(PackNow(host, bound));
  } else {
    DI_RETURN_IF_ERROR(CopyRows(host, bound));
  }
  return bound;
}

Result<Matrix> Weights::BindTable(const Matrix& host) {
  if (!tables_on_host_ || IsPacked(host.format)) return Bind(host, Activations::kFp32);
  context_.Enter();
  Matrix bound = host;
  DI_ASSIGN_OR_RETURN(std::byte* data, AllocateHost(DataBytes(host)));
  bound.data = data;
  std::byte* scale = nullptr;
  if (host.scale != nullptr) {
    DI_ASSIGN_OR_RETURN(scale, AllocateHost(ScaleBytes(host)));
    bound.scale = reinterpret_cast<const uint8_t*>(scale);
  }
  if (loader_ != nullptr && loader_->Covers(host) && PieceRows(host) > 0) {
    QueuePieces(host, bound, /*to_host=*/true);
    return bound;
  }
  DI_RETURN_IF_ERROR(CheckCodes(host, host.format));
  std::memcpy(data, host.data, DataBytes(host));
  if (scale != nullptr) std::memcpy(scale, host.scale, ScaleBytes(host));
  return bound;
}

}  // namespace deepinfer::backend::cuda
