// SPDX-License-Identifier: Apache-2.0
#include "backend/reference/reference_backend.h"

#include <cstdlib>
#include <cstring>

#include "backend/reference/ops.h"

namespace deepinfer::backend {
namespace {

class ReferenceBackend final : public Backend {
 public:
  std::string_view name() const override { return "reference"; }
  std::string_view kernel_variant() const override { return "float64"; }

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

  void Embed(const EmbedParams& p) override { reference::Embed(p); }
  void EngramLookup(const EngramLookupParams& p) override { reference::EngramLookup(p); }
  void EngramApply(const EngramApplyParams& p) override { reference::EngramApply(p); }
  void HcMix(const HcMixParams& p) override { reference::HcMix(p); }
  void HcCollapse(const HcCollapseParams& p) override { reference::HcCollapse(p); }
  void HcExpand(const HcExpandParams& p) override { reference::HcExpand(p); }
  bool can_sample() const override { return true; }
  void Sample(const SampleParams& p) override { reference::Sample(p); }
  void SampleAdjusted(const SampleAdjustedParams& p) override { reference::SampleAdjusted(p); }
  void ReadLogits(const RowLogitsParams& p) override { reference::ReadLogits(p); }
  void HcSum(const HcSumParams& p) override { reference::HcSum(p); }
  void Linear(const LinearParams& p) override { reference::Linear(p); }
  void Add(const AddParams& p) override { reference::Add(p); }
  void RmsNorm(const RmsNormParams& p) override { reference::RmsNorm(p); }
  void RopeTable(const RopeTableParams& p) override { reference::RopeTable(p); }
  void Rope(const RopeParams& p) override { reference::Rope(p); }
  void StoreWindow(const StoreWindowParams& p) override { reference::StoreWindow(p); }
  void Compress(const CompressParams& p) override { reference::Compress(p); }
  void StoreLatent(const StoreLatentParams& p) override { reference::StoreLatent(p); }
  void StoreIndexKey(const StoreIndexKeyParams& p) override { reference::StoreIndexKey(p); }
  void IndexSelect(const IndexSelectParams& p) override { reference::IndexSelect(p); }
  void Attention(const AttentionParams& p) override { reference::Attention(p); }
  void Route(const RouteParams& p) override { reference::Route(p); }
  void Experts(const ExpertsParams& p) override { reference::Experts(p); }
  void GatherRows(const GatherRowsParams& p) override { reference::GatherRows(p); }

 protected:
  void Free(void* device) override { std::free(device); }

 private:
  static void Copy(void* to, const void* from, size_t size_bytes) {
    if (size_bytes != 0) std::memcpy(to, from, size_bytes);
  }
};

}  // namespace

std::unique_ptr<Backend> CreateReference() { return std::make_unique<ReferenceBackend>(); }

}  // namespace deepinfer::backend
