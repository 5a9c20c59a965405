// SPDX-License-Identifier: Apache-2.0
// A backend that records like a GPU's, over one that does not: ops are kept with their parameters and run again on the
// same addresses. A copy while it records ends the test, as a GPU would refuse it.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "core/check.h"
#include "tests/model/forwarding_backend.h"

namespace deepinfer::golden {

class RecordingBackend : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;

  int replays() const { return replays_; }

  void CopyToDevice(void* device, const void* host, size_t size_bytes) override {
    DI_CHECK(ops_ == nullptr);
    ForwardingBackend::CopyToDevice(device, host, size_bytes);
  }
  void CopyToHost(void* host, const void* device, size_t size_bytes) override {
    DI_CHECK(ops_ == nullptr);
    ForwardingBackend::CopyToHost(host, device, size_bytes);
  }

  bool can_record() const override { return true; }
  void BeginRecording() override { ops_ = std::make_unique<Ops>(); }
  Result<std::unique_ptr<backend::Recording>> EndRecording() override {
    return Result<std::unique_ptr<backend::Recording>>(
        std::make_unique<Kept>(*this, std::move(*std::exchange(ops_, nullptr))));
  }

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

  void Do(std::function<void()> op) override {
    if (ops_ == nullptr) return op();
    ops_->push_back(std::move(op));
  }

  std::unique_ptr<Ops> ops_;  // while it records
  int replays_ = 0;
};

}  // namespace deepinfer::golden
