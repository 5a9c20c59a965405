// SPDX-License-Identifier: Apache-2.0
// Ops that are queued many times with the same parameters: plainly the first time, so that each has its memory, recorded the
// second time, and from then on replayed. Where a recording fails, they stay plain.
#pragma once

#include <memory>
#include <utility>

#include "backend/api/backend.h"

namespace deepinfer::model::deepseek_v41 {

class RecordedOps {
 public:
  // `queue` queues the ops; they must be the same at every call. REQUIRES: dev.can_record().
  template <typename Queue>
  void Run(backend::Backend& dev, const Queue& queue) {
    if (ops_ == nullptr && ran_ && works_) {
      dev.BeginRecording();
      queue();
      Result<std::unique_ptr<backend::Recording>> ops = dev.EndRecording();
      works_ = ops.ok();
      if (ops.ok()) ops_ = *std::move(ops);
    }
    if (ops_ != nullptr) {
      ops_->Replay();
    } else {
      queue();
      ran_ = true;
    }
  }

 private:
  bool ran_ = false, works_ = true;
  std::unique_ptr<backend::Recording> ops_;
};

}  // namespace deepinfer::model::deepseek_v41
