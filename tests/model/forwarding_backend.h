// SPDX-License-Identifier: Apache-2.0
// A backend that hands everything to another one, to be overridden where a test looks in or changes something.
#pragma once

#include <functional>
#include <memory>

#include "backend/api/backend.h"

namespace deepinfer::golden {

class ForwardingBackend : public backend::Backend {
 public:
  explicit ForwardingBackend(std::unique_ptr<backend::Backend> inner) : inner_(std::move(inner)) {}

  std::string_view name() const override { return inner_->name(); }
  std::string_view kernel_variant() const override { return inner_->kernel_variant(); }
  Result<backend::Buffer> Allocate(size_t size_bytes) override { return inner_->Allocate(size_bytes); }
  void CopyToDevice(void* device, const void* host, size_t size_bytes) override {
    inner_->CopyToDevice(device, host, size_bytes);
  }
  void CopyToHost(void* host, const void* device, size_t size_bytes) override {
    inner_->CopyToHost(host, device, size_bytes);
  }
  Status Synchronize() override { return inner_->Synchronize(); }
  Status BeginBinding(std::span<const backend::SourceFile> files) override { return inner_->BeginBinding(files); }
  Result<backend::BindStats> EndBinding() override { return inner_->EndBinding(); }
  Result<backend::Matrix> BindMatrix(const backend::Matrix& host, backend::Activations activations) override {
    return inner_->BindMatrix(host, activations);
  }
  Result<backend::Matrix> BindTable(const backend::Matrix& host) override { return inner_->BindTable(host); }

#define DI_FORWARDED_OP(Op)                        \
  void Op(const backend::Op##Params& p) override { \
    Do([this, p] { inner_->Op(p); });              \
  }
  DI_FORWARDED_OP(Embed)
  DI_FORWARDED_OP(EngramLookup)
  DI_FORWARDED_OP(EngramApply)
  DI_FORWARDED_OP(HcMix)
  DI_FORWARDED_OP(HcCollapse)
  DI_FORWARDED_OP(HcExpand)
  DI_FORWARDED_OP(HcSum)
  DI_FORWARDED_OP(Linear)
  DI_FORWARDED_OP(Add)
  DI_FORWARDED_OP(RmsNorm)
  DI_FORWARDED_OP(RopeTable)
  DI_FORWARDED_OP(Rope)
  DI_FORWARDED_OP(StoreWindow)
  DI_FORWARDED_OP(Compress)
  DI_FORWARDED_OP(StoreLatent)
  DI_FORWARDED_OP(StoreIndexKey)
  DI_FORWARDED_OP(IndexSelect)
  DI_FORWARDED_OP(Attention)
  DI_FORWARDED_OP(Route)
  DI_FORWARDED_OP(Experts)
  DI_FORWARDED_OP(GatherRows)
#undef DI_FORWARDED_OP

 protected:
  // Every op comes through here.
  virtual void Do(std::function<void()> op) { op(); }
  void Free(void*) override {}  // buffers belong to the inner backend
  backend::Backend& inner() { return *inner_; }

 private:
  std::unique_ptr<backend::Backend> inner_;
};

}  // namespace deepinfer::golden
