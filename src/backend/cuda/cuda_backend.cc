// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/cuda_backend.h"

#include <cuda_runtime_api.h>

#include "backend/cuda/graph.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/select.h"
#include "backend/cuda/weights.h"

namespace deepinfer::backend {
namespace {

class CudaBackend final : public Backend {
 public:
  CudaBackend(const CudaOptions& options, std::string_view variant)
      : context_(options.device), weights_(context_, options.tables_on_host, options.aligned_cols_min), variant_(variant) {}

  Status Init() { return context_.Init(); }

  std::string_view name() const override { return "cuda"; }
  std::string_view kernel_variant() const override { return variant_; }

  Result<Buffer> Allocate(size_t size_bytes) override {
    context_.Enter();
    void* data = nullptr;
    const cudaError_t error = cudaMalloc(&data, size_bytes == 0 ? 1 : size_bytes);
    if (error != cudaSuccess) {
      (void)cudaGetLastError();  // else the next op would find it there
      return Error(Code::kResourceExhausted, "CUDA device {}: no memory for a buffer of {} bytes: {}", context_.device(),
                   size_bytes, cudaGetErrorString(error));
    }
    return Buffer(this, data, size_bytes);
  }
  void CopyToDevice(void* device, const void* host, size_t size_bytes) override {
    context_.Enter();
    context_.Upload(device, host, size_bytes);
  }
  void CopyToHost(void* host, const void* device, size_t size_bytes) override {
    context_.Enter();
    if (size_bytes == 0) return;
    context_.Download(host, device, size_bytes);
  }
  Status Synchronize() override {
    context_.Enter();
    context_.Synchronize();
    return context_.TakeError();
  }
  double idle_seconds() const override { return 1e-9 * static_cast<double>(context_.idle_ns()); }
  bool can_record() const override { return true; }
  void BeginRecording() override { context_.BeginCapture(); }
  Result<std::unique_ptr<Recording>> EndRecording() override { return cuda::EndGraph(context_); }
  void BeginBranch() override { context_.BeginBranch(); }
  void EndBranch() override { context_.EndBranch(); }
  void JoinBranch() override { context_.JoinBranch(); }
  Status BeginBinding(std::span<const SourceFile> files) override { return weights_.Begin(files); }
  Result<BindStats> EndBinding() override { return weights_.End(); }
  Result<Matrix> BindMatrix(const Matrix& host, Activations activations) override {
    return weights_.Bind(host, activations);
  }
  Result<Matrix> BindTable(const Matrix& host) override { return weights_.BindTable(host); }
  std::optional<DeviceMemory> memory() const override {
    size_t free = 0, total = 0;
    if (cudaSetDevice(context_.device()) != cudaSuccess || cudaMemGetInfo(&free, &total) != cudaSuccess) return std::nullopt;
    return DeviceMemory{.total_bytes = static_cast<int64_t>(total),
                        .free_bytes = static_cast<int64_t>(free),
                        .weight_bytes = static_cast<int64_t>(weights_.device_bytes()),
                        .host_table_bytes = static_cast<int64_t>(weights_.host_bytes()),
                        .workspace_bytes = static_cast<int64_t>(context_.scratch_bytes())};
  }

  int64_t input_bytes(const Matrix& w, int64_t groups, Activations activations, int64_t rows) const override {
    return cuda::InputBytes(w, groups, activations, rows);
  }

  void Embed(const EmbedParams& p) override { Run(cuda::Embed, p, "embed"); }
  void EngramLookup(const EngramLookupParams& p) override { Run(cuda::EngramLookup, p, "engram lookup"); }
  void EngramApply(const EngramApplyParams& p) override { Run(cuda::EngramApply, p, "engram apply"); }
  void HcMix(const HcMixParams& p) override { Run(cuda::HcMix, p, "hyper-connection mix"); }
  void HcCollapse(const HcCollapseParams& p) override { Run(cuda::HcCollapse, p, "hyper-connection collapse"); }
  void HcExpand(const HcExpandParams& p) override { Run(cuda::HcExpand, p, "hyper-connection expand"); }
  void HcExpandMix(const HcExpandParams& expand, const HcMixParams& mix) override {
    Run([&](cuda::Context& context, const HcMixParams& p) { cuda::HcExpandMix(context, expand, p); }, mix,
        "hyper-connection expand and mix");
  }
  void Linear(const LinearParams& p) override { Run(cuda::Linear, p, "linear"); }
  void RmsNorm(const RmsNormParams& p) override { Run(cuda::RmsNorm, p, "rms norm"); }
  void LinearNorm(const LinearParams& linear, const RmsNormParams& norm) override {
    Run([&](cuda::Context& context, const LinearParams& p) { cuda::LinearNorm(context, p, norm); }, linear, "linear and norm");
  }
  void LinearExpandMix(const LinearParams& linear, const HcExpandParams& expand, const HcMixParams& mix) override {
    Run([&](cuda::Context& context, const LinearParams& p) { cuda::LinearExpandMix(context, p, expand, mix); }, linear,
        "linear, hyper-connection expand and mix");
  }
  void RopeTable(const RopeTableParams& p) override { Run(cuda::RopeTable, p, "rope table"); }
  void Rope(const RopeParams& p) override { Run(cuda::Rope, p, "rope"); }
  void StoreWindow(const StoreWindowParams& p) override { Run(cuda::StoreWindow, p, "store window"); }
  void LinearStoreWindow(const LinearParams& linear, const StoreWindowParams& store) override {
    Run([&](cuda::Context& context, const LinearParams& p) { cuda::LinearStoreWindow(context, p, store); }, linear,
        "linear and store window");
  }
  void Compress(const CompressParams& p) override { Run(cuda::Compress, p, "compress"); }
  void StoreLatent(const StoreLatentParams& p) override { Run(cuda::StoreLatent, p, "store latent"); }
  void StoreIndexKey(const StoreIndexKeyParams& p) override { Run(cuda::StoreIndexKey, p, "store index key"); }
  void IndexSelect(const IndexSelectParams& p) override { Run(cuda::IndexSelect, p, "index select"); }
  void Attention(const AttentionParams& p) override { Run(cuda::Attention, p, "attention"); }
  void Route(const RouteParams& p) override { Run(cuda::Route, p, "route"); }
  void Experts(const ExpertsParams& p) override { Run(cuda::Experts, p, "experts"); }
  void GatherRows(const GatherRowsParams& p) override { Run(cuda::GatherRows, p, "gather rows"); }
  bool can_sample() const override { return true; }
  void Sample(const SampleParams& p) override { Run(cuda::Sample, p, "sample"); }
  void SampleAdjusted(const SampleAdjustedParams& p) override { Run(cuda::SampleAdjusted, p, "sample adjusted"); }
  void ReadLogits(const RowLogitsParams& p) override { Run(cuda::ReadLogits, p, "read logits"); }
  void HcSum(const HcSumParams& p) override { Run(cuda::HcSum, p, "hyper-connection sum"); }
  void Add(const AddParams& p) override { Run(cuda::Add, p, "add"); }

 protected:
  // Queued work may still use the memory: cudaFree waits for it.
  void Free(void* device) override { context_.Record(cudaFree(device), "freeing a buffer"); }

 private:
  template <typename Launcher, typename Params>
  void Run(Launcher launcher, const Params& p, const char* what) {
    context_.BeginOp();
    launcher(context_, p);
    context_.MarkBusy();
    context_.Record(cudaGetLastError(), what);
  }

  cuda::Context context_;
  cuda::Weights weights_;
  std::string_view variant_;
};

}  // namespace

Result<std::unique_ptr<Backend>> CreateCuda(const CudaOptions& options) {
  int driver = 0, devices = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) {
    return Error(Code::kUnavailable, "CUDA: no NVIDIA driver was found");
  }
  const cudaError_t error = cudaGetDeviceCount(&devices);
  if (error != cudaSuccess && error != cudaErrorNoDevice && error != cudaErrorInsufficientDriver) {
    return Error(Code::kUnavailable, "CUDA: {}", cudaGetErrorString(error));
  }
  if (error != cudaErrorInsufficientDriver && (options.device < 0 || options.device >= devices)) {
    return Error(Code::kUnavailable, "CUDA: there is no device {}; the driver shows {}", options.device, devices);
  }
  cuda::DeviceFacts facts;
  facts.driver = driver;
  cudaDeviceProp properties{};
  if (error == cudaSuccess && cudaGetDeviceProperties(&properties, options.device) == cudaSuccess) {
    facts.name = properties.name;
    facts.major = properties.major;
    facts.minor = properties.minor;
  }
  DI_ASSIGN_OR_RETURN(const std::string_view variant, cuda::ChooseVariant(facts));
  auto backend = std::make_unique<CudaBackend>(options, variant);
  DI_RETURN_IF_ERROR(backend->Init());
  return Result<std::unique_ptr<Backend>>(std::move(backend));
}

}  // namespace deepinfer::backend
