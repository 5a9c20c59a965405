// SPDX-License-Identifier: Apache-2.0
// What the engine does, for /metrics, and whether it still does it, for /health. Any thread.
#pragma once

#include <prometheus/collectable.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <chrono>
#include <mutex>

#include "deepinfer/engine.h"
#include "server/api/answer_job.h"

namespace deepinfer::server {

// The engine's own counters, read when asked for.
class EngineMetrics final : public prometheus::Collectable {
 public:
  // `engine` must outlive it.
  explicit EngineMetrics(const Engine& engine) : engine_(engine) {}
  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  const Engine& engine_;
};

// Tells an engine that works, or has nothing to do, from one that hangs.
class EngineWatch {
 public:
  EngineWatch(const Engine& engine, std::chrono::duration<double> patience);
  // kUnavailable where requests have been running for longer than the patience and no step has ended since.
  Status Check();

 private:
  const Engine& engine_;
  const std::chrono::duration<double> patience_;
  std::mutex mutex_;
  int64_t steps_ = -1;                           // guarded: as last seen
  std::chrono::steady_clock::time_point since_;  // guarded: when they last changed, or nothing ran
};

// Counts and times of answers, by protocol.
class AnswerMetrics {
 public:
  explicit AnswerMetrics(prometheus::Registry& registry);
  void Record(const AnswerRecord& record);

 private:
  prometheus::Family<prometheus::Counter>& answers_;
  prometheus::Family<prometheus::Histogram>& first_token_seconds_;
  prometheus::Family<prometheus::Histogram>& token_seconds_;
  prometheus::Family<prometheus::Histogram>& seconds_;
};

}  // namespace deepinfer::server
