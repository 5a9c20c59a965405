// SPDX-License-Identifier: Apache-2.0
// A backend whose branches run as late as they may: where they are joined. What comes behind a branch and before its join sees
// nothing of it, and it sees all of that: an op that needs what another one writes beside it gives other results than in order.
#pragma once

#include <deque>
#include <functional>
#include <utility>
#include <vector>

#include "core/check.h"
#include "tests/model/forwarding_backend.h"

namespace deepinfer::golden {

class LateBranchBackend final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;

  int64_t late_ops() const { return late_ops_; }

  // Steps with branches are those that could be recorded. Here a recording always fails: its ops do not run, and then run plainly.
  bool can_record() const override { return true; }
  void BeginRecording() override { recording_ = true; }
  Result<std::unique_ptr<backend::Recording>> EndRecording() override {
    DI_CHECK(branches_.empty());
    recording_ = false;
    return Error(Code::kUnimplemented, "this backend records nothing");
  }
  Status Synchronize() override {
    DI_CHECK(branches_.empty());
    return ForwardingBackend::Synchronize();
  }
  void CopyToDevice(void* device, const void* host, size_t size_bytes) override {
    DI_CHECK(!in_branch_);
    ForwardingBackend::CopyToDevice(device, host, size_bytes);
  }

  void BeginBranch() override {
    DI_CHECK(!in_branch_ && branches_.size() < 2);
    branches_.emplace_back();
    in_branch_ = true;
  }
  void EndBranch() override {
    DI_CHECK(in_branch_);
    in_branch_ = false;
  }
  void JoinBranch() override {
    DI_CHECK(!in_branch_ && !branches_.empty());
    for (const auto& op : branches_.front()) op();
    branches_.pop_front();
  }
  void Experts(const backend::ExpertsParams& p) override {
    if (p.joins_last) JoinBranch();
    ForwardingBackend::Experts(p);
  }

 private:
  void Do(std::function<void()> op) override {
    if (recording_) return;
    if (!in_branch_) return op();
    branches_.back().push_back(std::move(op));
    ++late_ops_;
  }

  bool in_branch_ = false, recording_ = false;
  std::deque<std::vector<std::function<void()>>> branches_;  // that are not joined
  int64_t late_ops_ = 0;
};

}  // namespace deepinfer::golden
