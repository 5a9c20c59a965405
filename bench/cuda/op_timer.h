// SPDX-License-Identifier: Apache-2.0
// A backend that times each op of another one: records it many times, replays, and adds up by name. Ops that work in place
// run many times over, so the numbers that come out are not those of the pass; times do not depend on them.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <string>

#include "backend/api/backend.h"

namespace deepinfer::bench {

class OpTimer final : public backend::Backend {
 public:
  explicit OpTimer(backend::Backend& inner) : inner_(inner) {}

  // Seconds in all and number of calls of each op since the last Clear.
  struct Total {
    double seconds = 0;
    int calls = 0;
  };
  const std::map<std::string, Total>& totals() const { return totals_; }
  void Clear() { totals_.clear(); }

  std::string_view name() const override { return inner_.name(); }
  std::string_view kernel_variant() const override { return inner_.kernel_variant(); }
  Result<backend::Buffer> Allocate(size_t size_bytes) override { return inner_.Allocate(size_bytes); }
  void CopyToDevice(void* device, const void* host, size_t size_bytes) override { inner_.CopyToDevice(device, host, size_bytes); }
  void CopyToHost(void* host, const void* device, size_t size_bytes) override { inner_.CopyToHost(host, device, size_bytes); }
  Status Synchronize() override { return inner_.Synchronize(); }
  int64_t input_bytes(const backend::Matrix& w, int64_t groups, backend::Activations activations, int64_t rows) const override {
    return inner_.input_bytes(w, groups, activations, rows);
  }
  Result<backend::Matrix> BindMatrix(const backend::Matrix& host, backend::Activations activations) override {
    return inner_.BindMatrix(host, activations);
  }

#define DI_TIMED_OP(Op)                                                                          \
  void Op(const backend::Op##Params& p) override {                                               \
    Time(#Op, [&] { inner_.Op(p); });                                                            \
  }
  DI_TIMED_OP(Embed)
  DI_TIMED_OP(EngramLookup)
  DI_TIMED_OP(EngramApply)
  DI_TIMED_OP(HcMix)
  DI_TIMED_OP(HcCollapse)
  DI_TIMED_OP(HcExpand)
  DI_TIMED_OP(RmsNorm)
  DI_TIMED_OP(RopeTable)
  DI_TIMED_OP(Rope)
  DI_TIMED_OP(StoreWindow)
  DI_TIMED_OP(Compress)
  DI_TIMED_OP(StoreLatent)
  DI_TIMED_OP(StoreIndexKey)
  DI_TIMED_OP(IndexSelect)
  DI_TIMED_OP(Attention)
  DI_TIMED_OP(Route)
  DI_TIMED_OP(Experts)
  DI_TIMED_OP(GatherRows)
#undef DI_TIMED_OP
  void HcExpandMix(const backend::HcExpandParams& expand, const backend::HcMixParams& mix) override {
    Time("HcExpandMix", [&] { inner_.HcExpandMix(expand, mix); });
  }
  void Linear(const backend::LinearParams& p) override {
    Time(fmt::format("Linear {}x{}{}", p.w.rows, p.w.cols, p.activations == backend::Activations::kFp32 ? " fp32" : ""),
         [&] { inner_.Linear(p); });
  }

 protected:
  void Free(void*) override {}  // buffers belong to the inner backend

 private:
  void Time(const std::string& op, const std::function<void()>& run) {
    constexpr int kTimes = 10;
    run();
    if (!inner_.Synchronize().ok()) return;
    inner_.BeginRecording();
    for (int i = 0; i < kTimes; ++i) run();
    auto recording = inner_.EndRecording();
    if (!recording.ok()) return;
    (*recording)->Replay();
    if (!inner_.Synchronize().ok()) return;
    const auto begin = std::chrono::steady_clock::now();
    (*recording)->Replay();
    (*recording)->Replay();
    if (!inner_.Synchronize().ok()) return;
    Total& total = totals_[op];
    total.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / (2 * kTimes);
    ++total.calls;
  }

  backend::Backend& inner_;
  std::map<std::string, Total> totals_;
};

}  // namespace deepinfer::bench
