// SPDX-License-Identifier: Apache-2.0
// A backend: memory of a device and the ops on it. The model is written against this interface and never names a
// backend; adding one means one folder with one class.
//
// Ops and copies are queued in order on the backend's one stream and may return before they are done; Synchronize()
// waits. They report no errors of their own: parameters are the caller's duty (DI_CHECK), device errors come out of
// Synchronize(). Thread safety: one thread at a time per backend object; two objects are independent of each other.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "backend/api/ops.h"
#include "core/status.h"

namespace deepinfer::backend {

class Backend;

// Device memory that frees itself. Move-only; must not outlive its backend.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Backend* backend, void* data, size_t size_bytes) : backend_(backend), data_(data), size_bytes_(size_bytes) {}
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer() { Reset(); }

  void Reset();
  size_t size_bytes() const { return size_bytes_; }
  void* data() const { return data_; }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  Backend* backend_ = nullptr;
  void* data_ = nullptr;
  size_t size_bytes_ = 0;
};

// Ops kept to be run again: the same kernels on the same addresses. Belongs to its backend, which must outlive it.
class Recording {
 public:
  virtual ~Recording() = default;
  // Queues all of them at once.
  virtual void Replay() = 0;
};

// A mapped file that matrices lie in.
struct SourceFile {
  const std::byte* base = nullptr;  // of the mapping
  size_t size_bytes = 0;
  std::string path;
};

// What bringing the weights to the device took; nothing where they stay where they are.
struct BindStats {
  int64_t bytes = 0;
  double seconds = 0;
  int threads = 0;
  bool direct = false;  // past the page cache
};

// Memory of a device that is not the host's.
struct DeviceMemory {
  int64_t total_bytes = 0;
  int64_t free_bytes = 0;
  int64_t weight_bytes = 0;
  int64_t host_table_bytes = 0;  // pinned host memory that the device reads
  int64_t workspace_bytes = 0;   // scratch of ops
};

class Backend {
 public:
  virtual ~Backend() = default;

  // "cpu", "reference", "cuda".
  virtual std::string_view name() const = 0;
  // The instruction set or architecture whose kernels run ("avx512"): part of the numeric identity, together with name().
  virtual std::string_view kernel_variant() const = 0;

  // 64-byte aligned device memory, contents undefined. kResourceExhausted where there is none.
  virtual Result<Buffer> Allocate(size_t size_bytes) = 0;
  // The host memory may be reused when this returns.
  virtual void CopyToDevice(void* device, const void* host, size_t size_bytes) = 0;
  // The bytes are there when Synchronize returns; the host memory must stay until then.
  virtual void CopyToHost(void* host, const void* device, size_t size_bytes) = 0;
  // Waits for all that was queued; the first device error since the last call.
  virtual Status Synchronize() = 0;

  // Seconds in all in which nothing was queued: from a Synchronize that returned to the next op. 0 where ops do not wait in
  // a queue. Any thread may ask.
  virtual double idle_seconds() const { return 0; }

  // Ops between BeginRecording and EndRecording are kept and not run. Copies cannot be kept, and each op must have run with
  // the same shapes before. For backends whose launches cost time; the others say so with can_record.
  virtual bool can_record() const { return false; }
  virtual void BeginRecording();
  virtual Result<std::unique_ptr<Recording>> EndRecording();

  // Ops queued between BeginBranch and EndBranch may run beside those queued behind EndBranch until JoinBranch: neither may
  // need what the others write. They see all that was queued before. At most two branches wait to be joined; they run in order
  // and are joined in order. No copies and no synchronisation inside one.
  virtual void BeginBranch() {}
  virtual void EndBranch() {}
  virtual void JoinBranch() {}

  // Around the binding of a checkpoint's matrices: a backend that copies may read the files by itself meanwhile, and what
  // was bound is there after EndBinding. The files must stay mapped until then. Errors: as BindMatrix's.
  virtual Status BeginBinding(std::span<const SourceFile>) { return Status(); }
  virtual Result<BindStats> EndBinding() { return BindStats(); }

  // A weight matrix of the mapped checkpoint in the form that this backend's ops want. The CPU returns it as it is;
  // others copy. The result lives as long as the backend; for the CPU the mapping must outlive it.
  // activations: what the ops that read it will say; its form may be made for that alone.
  virtual Result<Matrix> BindMatrix(const Matrix& host, Activations activations) = 0;
  // The same for a table that ops gather few rows of (Engram): it may lie in slower memory.
  virtual Result<Matrix> BindTable(const Matrix& host) { return BindMatrix(host, Activations::kFp32); }
  // Nothing where the device's memory is the host's.
  virtual std::optional<DeviceMemory> memory() const { return std::nullopt; }

  // Bytes that another op needs to leave a linear's inputs as Linear reads them (LinearParams::inputs); 0: it cannot. The same for
  // all matrices of a shape and format; grows with the rows. Matrices of one width that read them laid out, rounded alike, read them
  // alike.
  virtual int64_t input_bytes(const Matrix& w, int64_t groups, Activations activations, int64_t rows) const {
    (void)w, (void)groups, (void)activations, (void)rows;
    return 0;
  }

  virtual void Embed(const EmbedParams& p) = 0;
  virtual void EngramLookup(const EngramLookupParams& p) = 0;
  virtual void EngramApply(const EngramApplyParams& p) = 0;
  virtual void HcMix(const HcMixParams& p) = 0;
  virtual void HcCollapse(const HcCollapseParams& p) = 0;
  virtual void HcExpand(const HcExpandParams& p) = 0;
  // HcExpand and then HcMix of the same rows, with the same bits; expand.post and comb may be what mix writes.
  virtual void HcExpandMix(const HcExpandParams& expand, const HcMixParams& mix) {
    HcExpand(expand);
    HcMix(mix);
  }
  virtual void Linear(const LinearParams& p) = 0;
  virtual void RmsNorm(const RmsNormParams& p) = 0;
  // Linear and then RmsNorm of its outputs, with the same bits; what lies in linear.y afterwards is open. It may be nullptr where the
  // norm's result is laid out.
  virtual void LinearNorm(const LinearParams& linear, const RmsNormParams& norm) {
    Linear(linear);
    RmsNorm(norm);
  }
  // Linear and then HcExpandMix with its outputs as expand.y, with the same bits; what lies in linear.y afterwards is open.
  virtual void LinearExpandMix(const LinearParams& linear, const HcExpandParams& expand, const HcMixParams& mix) {
    Linear(linear);
    HcExpandMix(expand, mix);
  }
  virtual void RopeTable(const RopeTableParams& p) = 0;
  virtual void Rope(const RopeParams& p) = 0;
  virtual void StoreWindow(const StoreWindowParams& p) = 0;
  // Linear and then StoreWindow of its outputs, with the same bits; what lies in linear.y afterwards is open.
  virtual void LinearStoreWindow(const LinearParams& linear, const StoreWindowParams& store) {
    Linear(linear);
    StoreWindow(store);
  }
  virtual void Compress(const CompressParams& p) = 0;
  virtual void StoreLatent(const StoreLatentParams& p) = 0;
  virtual void StoreIndexKey(const StoreIndexKeyParams& p) = 0;
  virtual void IndexSelect(const IndexSelectParams& p) = 0;
  virtual void Attention(const AttentionParams& p) = 0;
  virtual void Route(const RouteParams& p) = 0;
  virtual void Experts(const ExpertsParams& p) = 0;
  virtual void GatherRows(const GatherRowsParams& p) = 0;
  // Of the draft model. A backend that does not override them cannot run one: calling them is a bug.
  virtual void HcSum(const HcSumParams& p);
  virtual void Add(const AddParams& p);
  // Drawing where the logits are. Backends whose logits the host reads at no cost leave it to the host.
  virtual bool can_sample() const { return false; }
  virtual void Sample(const SampleParams& p);
  virtual void SampleAdjusted(const SampleAdjustedParams& p);
  virtual void ReadLogits(const RowLogitsParams& p);

 protected:
  friend class Buffer;
  virtual void Free(void* device) = 0;
};

// Allocates and fills a buffer with the bytes of `host`.
template <typename T>
Result<Buffer> Upload(Backend& backend, std::span<const T> host) {
  DI_ASSIGN_OR_RETURN(Buffer buffer, backend.Allocate(host.size_bytes()));
  backend.CopyToDevice(buffer.data(), host.data(), host.size_bytes());
  return Result<Buffer>(std::move(buffer));
}

}  // namespace deepinfer::backend
