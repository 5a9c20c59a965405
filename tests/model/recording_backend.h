// SPDX-License-Identifier: Apache-2.0
// A backend that records like a GPU's, over one that does not: ops are kept with their parameters and run again on the same
// addresses. A copy while it records ends the test, as a GPU would refuse it.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "backend/api/backend.h"
#include "core/check.h"

namespace deepinfer::golden {

class RecordingBackend : public backend::Backend {
 public:
  explicit RecordingBackend(std::unique_ptr<backend::Backend> inner) : inner_(std::move(inner)) {}

  int replays() const { return replays_; }

  std::string_view name() const override { return inner_->name(); }
  std::string_view kernel_variant() const override { return inner_->kernel_variant(); }
  Result<backend::Buffer> Allocate(size_t size_bytes) override { return inner_->Allocate(size_bytes); }
  void CopyToDevice(void* device, const void* host, size_t size_bytes) override {
    DI_CHECK(ops_ == nullptr);
    inner_->CopyToDevice(device, host, size_bytes);
  }
  void CopyToHost(void* host, const void* device, size_t size_bytes) override {
    DI_CHECK(ops_ == nullptr);
    inner_->CopyToHost(host, device, size_bytes);
  }
  Status Synchronize() override { return inner_->Synchronize(); }
  Result<backend::Matrix> BindMatrix(const backend::Matrix& host) override { return inner_->BindMatrix(host); }

  bool can_record() const override { return true; }
  void BeginRecording() override { ops_ = std::make_unique<Ops>(); }
  Result<std::unique_ptr<backend::Recording>> EndRecording() override {
    return Result<std::unique_ptr<backend::Recording>>(std::make_unique<Kept>(*this, std::move(*std::exchange(ops_, nullptr))));
  }

#define DI_RECORDED_OP(Op)                               \
  void Op(const backend::Op##Params& p) override {       \
    Do([this, p] { inner_->Op(p); });                    \
  }
  DI_RECORDED_OP(Embed)
  DI_RECORDED_OP(EngramLookup)
  DI_RECORDED_OP(EngramApply)
  DI_RECORDED_OP(HcMix)
  DI_RECORDED_OP(HcCollapse)
  DI_RECORDED_OP(HcExpand)
  DI_RECORDED_OP(HcSum)
  DI_RECORDED_OP(Linear)
  DI_RECORDED_OP(Add)
  DI_RECORDED_OP(RmsNorm)
  DI_RECORDED_OP(RopeTable)
  DI_RECORDED_OP(Rope)
  DI_RECORDED_OP(StoreWindow)
  DI_RECORDED_OP(Compress)
  DI_RECORDED_OP(StoreLatent)
  DI_RECORDED_OP(StoreIndexKey)
  DI_RECORDED_OP(IndexSelect)
  DI_RECORDED_OP(Attention)
  DI_RECORDED_OP(Route)
  DI_RECORDED_OP(Experts)
  DI_RECORDED_OP(GatherRows)
#undef DI_RECORDED_OP

 protected:
  void Free(void*) override {}  // buffers belong to the inner backend

 private:
  using Ops = std::vector<std::function<void()>>;

  class Kept final : public backend::Recording {
   public:
    Kept(RecordingBackend& owner, Ops ops) : owner_(owner), ops_(std::move(ops)) {}
    void Replay() override {
      ++owner_.replays_;
      for (const auto& op : ops_) op();
    }

   private:
    RecordingBackend& owner_;
    Ops ops_;
  };

  void Do(std::function<void()> op) {
    if (ops_ == nullptr) return op();
    ops_->push_back(std::move(op));
  }

  std::unique_ptr<backend::Backend> inner_;
  std::unique_ptr<Ops> ops_;  // while it records
  int replays_ = 0;
};

}  // namespace deepinfer::golden
