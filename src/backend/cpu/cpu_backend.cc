// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/cpu_backend.h"

#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "backend/cpu/ops.h"
#include "backend/cpu/variants.h"

namespace deepinfer::backend {
namespace {

int AllowedCores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

class CpuBackend final : public Backend {
 public:
  CpuBackend(const cpu::Kernels& kernels, int num_threads) : context_(kernels, num_threads) {}

  std::string_view name() const override { return "cpu"; }
  std::string_view kernel_variant() const override { return context_.kernels.name; }

  Result<Buffer> Allocate(size_t size_bytes) override {
    // aligned_alloc wants a multiple of the alignment; an empty buffer still gets an address of its own.
    const size_t rounded = (size_bytes + 63) / 64 * 64 + (size_bytes == 0 ? 64 : 0);
    void* data = rounded < size_bytes ? nullptr : std::aligned_alloc(64, rounded);
    if (data == nullptr) return Error(Code::kResourceExhausted, "no memory for a buffer of {} bytes", size_bytes);
    return Buffer(this, data, size_bytes);
  }
  void CopyToDevice(void* device, const void* host, size_t size_bytes) override { Copy(device, host, size_bytes); }
  void CopyToHost(void* host, const void* device, size_t size_bytes) override { Copy(host, device, size_bytes); }
  Status Synchronize() override { return Status(); }
  Result<Matrix> BindMatrix(const Matrix& host, Activations) override { return host; }

  void Embed(const EmbedParams& p) override { cpu::Embed(context_, p); }
  void EngramLookup(const EngramLookupParams& p) override { cpu::EngramLookup(context_, p); }
  void EngramApply(const EngramApplyParams& p) override { cpu::EngramApply(context_, p); }
  void HcMix(const HcMixParams& p) override { cpu::HcMix(context_, p); }
  void HcCollapse(const HcCollapseParams& p) override { cpu::HcCollapse(context_, p); }
  void HcExpand(const HcExpandParams& p) override { cpu::HcExpand(context_, p); }
  void HcSum(const HcSumParams& p) override { cpu::HcSum(context_, p); }
  void Linear(const LinearParams& p) override { cpu::Linear(context_, p); }
  void Add(const AddParams& p) override { cpu::Add(context_, p); }
  void RmsNorm(const RmsNormParams& p) override { cpu::RmsNorm(context_, p); }
  void RopeTable(const RopeTableParams& p) override { cpu::RopeTable(context_, p); }
  void Rope(const RopeParams& p) override { cpu::Rope(context_, p); }
  void StoreWindow(const StoreWindowParams& p) override { cpu::StoreWindow(context_, p); }
  void Compress(const CompressParams& p) override { cpu::Compress(context_, p); }
  void StoreLatent(const StoreLatentParams& p) override { cpu::StoreLatent(context_, p); }
  void StoreIndexKey(const StoreIndexKeyParams& p) override { cpu::StoreIndexKey(context_, p); }
  void IndexSelect(const IndexSelectParams& p) override { cpu::IndexSelect(context_, p); }
  void Attention(const AttentionParams& p) override { cpu::Attention(context_, p); }
  void Route(const RouteParams& p) override { cpu::Route(context_, p); }
  void Experts(const ExpertsParams& p) override { cpu::Experts(context_, p); }
  void GatherRows(const GatherRowsParams& p) override { cpu::GatherRows(context_, p); }

 protected:
  void Free(void* device) override { std::free(device); }

 private:
  static void Copy(void* to, const void* from, size_t size_bytes) {
    if (size_bytes != 0) std::memcpy(to, from, size_bytes);
  }

  cpu::Context context_;
};

}  // namespace

std::vector<std::string_view> CpuVariants() {
  std::vector<std::string_view> names;
  for (const cpu::Variant& variant : cpu::AllVariants()) {
    if (variant.supported) names.emplace_back(variant.kernels->name);
  }
  return names;
}

Result<std::unique_ptr<Backend>> CreateCpu(const CpuOptions& options) {
  if (options.num_threads < 0 || options.num_threads > kCpuThreadsMax) {
    return Error(Code::kInvalidArgument, "threads: expected 0..{}, found {}", kCpuThreadsMax, options.num_threads);
  }
  const int num_threads = options.num_threads > 0 ? options.num_threads : std::min(AllowedCores(), kCpuThreadsMax);
  for (const cpu::Variant& variant : cpu::AllVariants()) {
    if (!options.variant.empty() && options.variant != variant.kernels->name) continue;
    if (variant.supported) return std::unique_ptr<Backend>(new CpuBackend(*variant.kernels, num_threads));
    if (!options.variant.empty()) {
      return Error(Code::kInvalidArgument, "CPU variant '{}': this processor lacks its instructions", options.variant);
    }
  }
  return Error(Code::kInvalidArgument, "CPU variant '{}': expected avx512, avx2 or portable", options.variant);
}

}  // namespace deepinfer::backend
