// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/context.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/check.h"
#include "core/status.h"

namespace deepinfer::backend::cuda {
namespace {

constexpr size_t kAlignment = 1024;
constexpr size_t kFirstChunkBytes = size_t{32} << 20;

// What the next node of a stream in a capture waits for; nothing where there is no capture.
struct CapturedNodes {
  const cudaGraphNode_t* nodes = nullptr;
  size_t count = 0;

  explicit CapturedNodes(cudaStream_t stream) {
    cudaStreamCaptureStatus status{};
    const cudaGraphEdgeData* edges = nullptr;
    const bool ok = cudaStreamGetCaptureInfo(stream, &status, nullptr, nullptr, &nodes, &edges, &count) == cudaSuccess;
    if (!ok || status != cudaStreamCaptureStatusActive) count = 0;
  }
};

}  // namespace

Context::~Context() {
  for (cudaStream_t stream : streams_) {
    if (stream != nullptr) cudaStreamSynchronize(stream);
  }
  for (const Scratch& scratch : scratch_) {
    for (const Chunk& chunk : scratch.chunks) cudaFree(chunk.data);
  }
  for (const Chunk& chunk : outgrown_) cudaFree(chunk.data);
  for (const auto& [addresses, table] : tables_) cudaFree(table);
  cudaFree(marks_);
  for (cudaEvent_t event : {begin_, ends_[0], ends_[1]}) {
    if (event != nullptr) cudaEventDestroy(event);
  }
  for (cudaStream_t stream : streams_) {
    if (stream != nullptr) cudaStreamDestroy(stream);
  }
}

Status Context::Init() {
  Enter();
  for (cudaStream_t& stream : streams_) Record(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "creating a stream");
  for (cudaEvent_t* event : {&begin_, &ends_[0], &ends_[1]}) {
    Record(cudaEventCreateWithFlags(event, cudaEventDisableTiming), "creating an event");
  }
  Record(cudaDeviceGetAttribute(&num_sms_, cudaDevAttrMultiProcessorCount, device_), "reading the device");
  void* marks = nullptr;
  Record(cudaMalloc(&marks, kNumMarks * sizeof(uint64_t)), "allocating marks");
  marks_ = static_cast<uint64_t*>(marks);
  if (marks != nullptr) ClearMarks();
  return TakeError();
}

void Context::ClearMarks() { Record(cudaMemsetAsync(marks_, 0, kNumMarks * sizeof(uint64_t), streams_[0]), "clearing marks"); }

void Context::Record(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  (void)cudaGetLastError();  // else the next op would find it there
  if (error_.error == cudaSuccess) error_ = {error, what};
}

Status Context::TakeError() {
  const FirstError first = std::exchange(error_, {});
  if (first.error == cudaSuccess) return Status();
  const Code code = first.error == cudaErrorMemoryAllocation ? Code::kResourceExhausted : Code::kInternal;
  return Error(code, "CUDA device {}: {}: {}", device_, first.what, cudaGetErrorString(first.error));
}

int64_t Context::NowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

bool Context::TakeCrossing() {
  if (!std::exchange(crossing_[in_branch_ ? 1 : 0], false)) return false;
  const cudaGraphNode_t before = std::exchange(before_join_, nullptr);
  if (before == nullptr || in_branch_) return true;
  const CapturedNodes waited(streams_[0]);
  std::vector<cudaGraphNode_t> nodes(waited.nodes, waited.nodes + waited.count);
  std::vector<cudaGraphEdgeData> edges(waited.count);
  for (size_t i = 0; i < waited.count; ++i) {
    if (nodes[i] != before) continue;
    edges[i].from_port = cudaGraphKernelNodePortProgrammatic;
    edges[i].type = cudaGraphDependencyTypeProgrammatic;
  }
  Record(cudaStreamUpdateCaptureDependencies(streams_[0], nodes.data(), edges.data(), nodes.size(), cudaStreamSetCaptureDependencies),
         "joining a branch");
  return true;
}

void Context::BeginBranch() {
  DI_CHECK(!in_branch_ && num_ended_ - num_joined_ < kBranchesMax);
  Record(cudaEventRecord(begin_, streams_[0]), "beginning a branch");
  Record(cudaStreamWaitEvent(streams_[1], begin_), "beginning a branch");
  in_branch_ = crossing_[1] = true;
}

void Context::EndBranch() {
  DI_CHECK(in_branch_);
  Record(cudaEventRecord(ends_[num_ended_++ % kBranchesMax], streams_[1]), "ending a branch");
  in_branch_ = false;
}

void Context::JoinBranch() {
  DI_CHECK(!in_branch_ && num_joined_ < num_ended_);
  before_join_ = nullptr;
  if (const CapturedNodes last(streams_[0]); last.count == 1) {
    cudaGraphNodeType type{};
    Record(cudaGraphNodeGetType(last.nodes[0], &type), "joining a branch");
    if (type == cudaGraphNodeTypeKernel) before_join_ = last.nodes[0];
  }
  Record(cudaStreamWaitEvent(streams_[0], ends_[num_joined_++ % kBranchesMax]), "joining a branch");
  crossing_[0] = true;
}

void Context::BeginCapture() {
  DI_CHECK(num_joined_ == num_ended_ && !in_branch_ && !capturing_);
  SettleScratch();
  error_before_capture_ = std::exchange(error_, {});
  capturing_ = true;
  Record(cudaStreamBeginCapture(streams_[0], cudaStreamCaptureModeThreadLocal), "beginning a graph");
}

Status Context::EndCapture(cudaGraphExec_t* graph) {
  DI_CHECK(num_joined_ == num_ended_ && !in_branch_ && capturing_);
  Enter();
  capturing_ = false;
  cudaGraph_t kept = nullptr;
  Record(cudaStreamEndCapture(streams_[0], &kept), "ending a graph");
  if (kept != nullptr) {
    Record(cudaGraphInstantiate(graph, kept, 0), "instantiating a graph");
    Record(cudaGraphDestroy(kept), "destroying a graph");
  }
  Status status = TakeError();
  error_ = error_before_capture_;
  if (!status.ok() && *graph != nullptr) cudaGraphExecDestroy(std::exchange(*graph, nullptr));
  return status;
}

void Context::SettleScratch() {
  Enter();
  for (int i = 0; i < 2; ++i) Settle(streams_[i], scratch_[i]);
}

void Context::Settle(cudaStream_t stream, Scratch& scratch) {
  scratch.used_bytes = 0;
  std::vector<Chunk>& chunks = scratch.chunks;
  if (chunks.size() <= 1) return;
  // The last op outgrew the chunk: from now on one chunk holds as much as it took.
  Record(cudaStreamSynchronize(stream), "waiting for the scratch memory");
  size_t total = 0;
  for (const Chunk& chunk : chunks) {
    total += chunk.size_bytes;
    if (num_graphs_ > 0) {
      outgrown_.push_back(chunk);
      continue;
    }
    Record(cudaFree(chunk.data), "freeing scratch memory");
    scratch_bytes_ -= chunk.size_bytes;
  }
  chunks.clear();
  void* data = nullptr;
  const cudaError_t error = cudaMalloc(&data, total);
  Record(error, "allocating scratch memory");
  if (error != cudaSuccess) return;
  chunks.push_back({static_cast<char*>(data), total});
  scratch_bytes_ += total;
}

void* Context::TakeBytes(size_t size_bytes) {
  const size_t rounded = (std::max<size_t>(size_bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
  Scratch& scratch = scratch_[in_branch_ ? 1 : 0];
  if (scratch.chunks.empty() || scratch.chunks.back().size_bytes - scratch.used_bytes < rounded) {
    void* data = nullptr;
    const size_t chunk_bytes = std::max(rounded, kFirstChunkBytes);
    const cudaError_t error = cudaMalloc(&data, chunk_bytes);
    Record(error, "allocating scratch memory");
    if (error != cudaSuccess) return nullptr;
    scratch.chunks.push_back({static_cast<char*>(data), chunk_bytes});
    scratch_bytes_ += chunk_bytes;
    scratch.used_bytes = 0;
  }
  void* result = scratch.chunks.back().data + scratch.used_bytes;
  scratch.used_bytes += rounded;
  return result;
}

const void* Context::DeviceTable(std::vector<const void*> addresses) {
  if (const auto found = tables_.find(addresses); found != tables_.end()) return found->second;
  if (capturing_) {  // its copy would be kept, and not done now
    Record(cudaErrorStreamCaptureUnsupported, "a new table of weights");
    return nullptr;
  }
  void* table = nullptr;
  const size_t size_bytes = addresses.size() * sizeof(void*);
  const cudaError_t error = cudaMalloc(&table, size_bytes);
  Record(error, "allocating a table of weights");
  if (error != cudaSuccess) return nullptr;
  const auto kept = tables_.emplace(std::move(addresses), table).first;
  // Whoever reads it may do so in a branch, which does not wait for copies, and before it waits for other kernels.
  Record(uploads_.Copy(table, kept->first.data(), size_bytes, streams_[0]), "copying a table of weights");
  Record(cudaStreamSynchronize(streams_[0]), "copying a table of weights");
  return table;
}

}  // namespace deepinfer::backend::cuda
