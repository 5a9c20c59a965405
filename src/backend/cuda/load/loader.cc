// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/load/loader.h"

#include <algorithm>
#include <cstring>

#include "backend/cuda/linear/pack.h"
#include "backend/cuda/linear/packed.h"

namespace deepinfer::backend::cuda {
namespace {

constexpr unsigned kThreadsMax = 8;

Status ToStatus(cudaError_t error) {
  if (error == cudaSuccess) return Status();
  const Code code = error == cudaErrorMemoryAllocation ? Code::kResourceExhausted : Code::kInternal;
  return Error(code, "CUDA: loading weights: {}", cudaGetErrorString(error));
}

}  // namespace

// Pinned memory and its twin on the device; data first, scales behind.
struct Loader::Slot {
  static constexpr size_t kBytes = kPieceBytes + 4 * SourceFileReader::kSlack;
  std::byte *pinned = nullptr, *device = nullptr;
  cudaEvent_t free = nullptr;

  Status Create() {
    void *host = nullptr, *card = nullptr;
    DI_RETURN_IF_ERROR(ToStatus(cudaHostAlloc(&host, kBytes, cudaHostAllocDefault)));
    pinned = static_cast<std::byte*>(host);
    DI_RETURN_IF_ERROR(ToStatus(cudaMalloc(&card, kBytes)));
    device = static_cast<std::byte*>(card);
    return ToStatus(cudaEventCreateWithFlags(&free, cudaEventDisableTiming));
  }
  ~Slot() {
    if (free != nullptr) cudaEventDestroy(free);
    if (pinned != nullptr) cudaFreeHost(pinned);
    if (device != nullptr) cudaFree(device);
  }
};

size_t DataBytes(const Matrix& m) { return static_cast<size_t>(m.rows) * MatrixRowBytes(m); }

size_t ScaleBytes(const Matrix& m) {
  if (m.scale == nullptr) return 0;
  const int64_t rows = m.format == WeightFormat::kFp8Tile32 ? (m.rows + 31) / 32 : m.rows;
  return static_cast<size_t>(rows * (m.cols / 32));
}

// Most kernels multiply the code's bits by 2^(scale + bias) in bf16, which is exact as long as that is finite. A NaN code
// would come out as 480 there.
Status CheckCodes(const Matrix& rows, WeightFormat bound) {
  const size_t scales = ScaleBytes(rows);
  if (scales > 0) {
    const int largest = *std::max_element(rows.scale, rows.scale + scales);
    const int most = IsPacked(bound) && !IsAligned(bound) ? ScaleCodeMax(rows.format) : 254;
    if (largest > most) {
      return Error(Code::kUnimplemented,
                   "CUDA: a weight scale of 2^{} (e8m0 code {}) in a matrix of {} columns; at most 2^{} is decoded exactly",
                   largest - 127, largest, rows.cols, most - 127);
    }
  }
  if (rows.format != WeightFormat::kFp8Tile32 && rows.format != WeightFormat::kFp8Row32) return Status();
  const auto* codes = static_cast<const uint8_t*>(rows.data);
  int64_t nans = 0;
  for (size_t i = 0; i < DataBytes(rows); ++i) nans += (codes[i] & 0x7F) == 0x7F;
  if (nans == 0) return Status();
  return Error(Code::kDataLoss, "CUDA: {} NaN codes among FP8 weights of a matrix of {} columns: the checkpoint is damaged", nans,
               rows.cols);
}

Status Loader::Start() {
  num_threads_ = static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, kThreadsMax));
  for (int i = 0; i < num_threads_; ++i) threads_.emplace_back([this] { Work(); });
  return Status();
}

SourceFileReader* Loader::FileOf(const void* data) const {
  for (const auto& file : files_) {
    if (file->Covers(data)) return file.get();
  }
  return nullptr;
}

bool Loader::direct() const {
  return std::any_of(files_.begin(), files_.end(), [](const auto& file) { return file->direct(); });
}

void Loader::Queue(const LoadPiece& piece) {
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(piece);
  }
  wakes_.notify_one();
}

Status Loader::Finish() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  wakes_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  return status_;
}

void Loader::Work() {
  Slot slots[2];
  cudaStream_t stream = nullptr;
  Status status = ToStatus(cudaSetDevice(device_));
  if (status.ok()) status = ToStatus(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  for (Slot& slot : slots) {
    if (status.ok()) status = slot.Create();
  }
  for (size_t at = 0; status.ok(); ++at) {
    LoadPiece piece;
    {
      std::unique_lock lock(mutex_);
      wakes_.wait(lock, [&] { return closed_ || !queue_.empty(); });
      if (queue_.empty() || !status_.ok()) break;
      piece = queue_.front();
      queue_.pop_front();
    }
    status = Load(piece, &slots[at % 2], stream);
  }
  if (stream != nullptr) {
    const Status done = ToStatus(cudaStreamSynchronize(stream));
    if (status.ok()) status = done;
    cudaStreamDestroy(stream);
  }
  if (status.ok()) return;
  const std::lock_guard lock(mutex_);
  if (status_.ok()) status_ = status;
}

Status Loader::Load(const LoadPiece& piece, Slot* slot, cudaStream_t stream) {
  DI_RETURN_IF_ERROR(ToStatus(cudaEventSynchronize(slot->free)));
  const size_t data_bytes = DataBytes(piece.rows), scale_bytes = ScaleBytes(piece.rows);
  const size_t scale_at = (data_bytes + SourceFileReader::kSlack + SourceFileReader::kAlignment - 1) / SourceFileReader::kAlignment *
                          SourceFileReader::kAlignment;
  Matrix rows = piece.rows;
  DI_ASSIGN_OR_RETURN(rows.data, FileOf(piece.rows.data)->Read(piece.rows.data, data_bytes, slot->pinned));
  if (scale_bytes > 0) {
    DI_ASSIGN_OR_RETURN(const std::byte* scale, FileOf(piece.rows.scale)->Read(piece.rows.scale, scale_bytes, slot->pinned + scale_at));
    rows.scale = reinterpret_cast<const uint8_t*>(scale);
  }
  DI_RETURN_IF_ERROR(CheckCodes(rows, piece.format));
  if (piece.to_host) {
    std::memcpy(piece.data, rows.data, data_bytes);
    if (scale_bytes > 0) std::memcpy(piece.scale, rows.scale, scale_bytes);
    return Status();
  }
  const auto copy = [&](std::byte* to, const void* from, size_t bytes) {
    return ToStatus(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream));
  };
  std::byte* data_to = piece.pack ? slot->device : piece.data;
  std::byte* scale_to = piece.pack ? slot->device + scale_at : piece.scale;
  DI_RETURN_IF_ERROR(copy(data_to, rows.data, data_bytes));
  if (scale_bytes > 0) DI_RETURN_IF_ERROR(copy(scale_to, rows.scale, scale_bytes));
  if (piece.pack) {
    rows.data = data_to;
    if (scale_bytes > 0) rows.scale = reinterpret_cast<const uint8_t*>(scale_to);
    Pack(stream, rows, piece.format, piece.data);
    DI_RETURN_IF_ERROR(ToStatus(cudaGetLastError()));
  }
  return ToStatus(cudaEventRecord(slot->free, stream));
}

}  // namespace deepinfer::backend::cuda
