// SPDX-License-Identifier: Apache-2.0
// What every launcher needs: the stream, scratch memory, and a place for the first error. One per backend, one thread at
// a time.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "backend/cuda/downloads.h"
#include "backend/cuda/uploads.h"
#include "core/check.h"

namespace deepinfer {
class Status;  // nvcc cannot compile what core/status.h includes
}

namespace deepinfer::backend::cuda {

class Context {
 public:
  explicit Context(int device) : device_(device) {}
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  // Creates the stream and reads what launchers ask about the device.
  Status Init();

  // Makes this the calling thread's device; every entry point calls it first.
  void Enter() { Record(cudaSetDevice(device_), "choosing the device"); }

  // Where kernels are launched: the stream, or the branch's.
  cudaStream_t stream() const { return streams_[in_branch_ ? 1 : 0]; }
  int device() const { return device_; }
  int num_sms() const { return num_sms_; }

  // Keeps the first error until TakeError. `what` is a literal.
  void Record(cudaError_t error, const char* what);
  Status TakeError();

  // See backend/api/backend.h. A branch is a second stream with scratch memory of its own.
  void BeginBranch();
  void EndBranch();
  void JoinBranch();
  // Whether the next kernel of this stream waits for one of the other stream: then it does not begin early, but in a capture behind
  // a joined branch: there it may, while the kernel before it in the stream runs, once the branch is over.
  bool TakeCrossing();

  // Scratch memory of one op: 1024-byte aligned, contents undefined, valid until the next BeginOp. The stream orders
  // the ops, so they share it. Returns nullptr, with the error recorded, where memory is short; the op then does nothing.
  void BeginOp() {
    Enter();
    Settle(streams_[in_branch_ ? 1 : 0], scratch_[in_branch_ ? 1 : 0]);
  }
  // Brings all scratch memory into one piece each, so that ops which ran before allocate nothing.
  void SettleScratch();
  void* TakeBytes(size_t size_bytes);
  template <typename T>
  T* Take(int64_t count) {
    return static_cast<T*>(TakeBytes(static_cast<size_t>(count) * sizeof(T)));
  }

  // From here to EndCapture ops are kept and not run. Nothing may be allocated or copied meanwhile.
  void BeginCapture();
  // What was kept, as a graph that can be run. Fails with the first error since BeginCapture; an earlier one is still there for
  // TakeError.
  Status EndCapture(cudaGraphExec_t* graph);

  // Device words that keep what kernels of the stream (not of a branch) leave in them; zeros at first. For what blocks of one kernel
  // tell each other: whoever reads must know a word of this kernel from one of an earlier kernel. Enough for mixes of 16,400 rows.
  static constexpr int64_t kNumMarks = (int64_t{1} << 19) + 1024;
  uint64_t* marks() const {
    DI_CHECK(!in_branch_);  // kernels of two streams would take each other's words for their own
    return marks_;
  }
  // Zeros again, behind what the stream does: where a kernel that was to leave something there did not start.
  void ClearMarks();

  // Graphs hold the addresses of scratch memory: while there are any, memory that was outgrown is kept.
  void AddGraph() { ++num_graphs_; }
  void RemoveGraph() { --num_graphs_; }

  // Queues a copy to the device; the host memory is free at once.
  void Upload(void* device, const void* host, size_t size_bytes) {
    DI_CHECK(!in_branch_ && !capturing_);  // a branch does not wait for it; a graph would copy what lies in the ring by then
    Record(uploads_.Copy(device, host, size_bytes, streams_[0]), "copying to the device");
  }

  // The same to the host; the bytes are there after Synchronize.
  void Download(void* host, const void* device, size_t size_bytes) {
    DI_CHECK(!in_branch_ && !capturing_);
    Record(downloads_.Copy(host, device, size_bytes, streams_[0]), "copying to the host");
  }
  void Synchronize() {
    DI_CHECK(num_joined_ == num_ended_ && !in_branch_ && !capturing_);
    Record(cudaStreamSynchronize(streams_[0]), "running the queued work");
    downloads_.Finish();
    MarkIdle();
  }

  size_t scratch_bytes() const { return scratch_bytes_; }

  // The stream has run dry; something was queued again. The time between counts as idle.
  void MarkIdle() { idle_since_ns_ = NowNs(); }
  void MarkBusy() {
    if (idle_since_ns_ != 0) idle_ns_ += NowNs() - idle_since_ns_;
    idle_since_ns_ = 0;
  }
  int64_t idle_ns() const { return idle_ns_; }

  // What `ask` says of a kernel on this device, asked at the first call.
  template <typename Ask>
  int AskOnce(const void* kernel, const Ask& ask) {
    const auto [at, is_new] = answers_.try_emplace(kernel, 0);
    if (is_new) at->second = ask();
    return at->second;
  }

  // A device copy of a list of addresses, made at the first call with this content and kept; all of it is there when this returns,
  // for readers in a branch too. nullptr, with the error recorded, where memory is short, and for new content in a capture.
  const void* DeviceTable(std::vector<const void*> addresses);

 private:
  static constexpr int kBranchesMax = 2;  // that are not joined

  static int64_t NowNs();

  struct FirstError {
    cudaError_t error = cudaSuccess;
    const char* what = "";
  };
  struct Chunk {
    char* data;
    size_t size_bytes;
  };
  struct Scratch {
    std::vector<Chunk> chunks;  // the last one is being filled; more than one only until the next BeginOp
    size_t used_bytes = 0;      // of the last chunk
  };
  void Settle(cudaStream_t stream, Scratch& scratch);

  int device_;
  int num_sms_ = 0;
  cudaStream_t streams_[2] = {};  // the stream, the branch's
  cudaEvent_t begin_ = nullptr, ends_[kBranchesMax] = {};
  int num_ended_ = 0, num_joined_ = 0;
  bool in_branch_ = false, capturing_ = false;
  bool crossing_[2] = {};  // by stream
  cudaGraphNode_t before_join_ = nullptr;  // in a capture: the stream's last kernel before the branch was joined
  uint64_t* marks_ = nullptr;
  FirstError error_, error_before_capture_;
  Scratch scratch_[2];  // of the stream, of the branch
  std::vector<Chunk> outgrown_;
  size_t scratch_bytes_ = 0;  // of all chunks
  int num_graphs_ = 0;
  int64_t idle_since_ns_ = 0;  // 0: something is queued
  std::atomic<int64_t> idle_ns_ = 0;
  Uploads uploads_;
  Downloads downloads_;
  std::map<std::vector<const void*>, void*> tables_;
  std::map<const void*, int> answers_;  // by kernel
};

}  // namespace deepinfer::backend::cuda
