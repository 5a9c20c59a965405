// SPDX-License-Identifier: Apache-2.0
#include "server/engine_metrics.h"

#include <prometheus/counter.h>

namespace deepinfer::server {
namespace {

using prometheus::MetricFamily;
using prometheus::MetricType;

const prometheus::Histogram::BucketBoundaries kSeconds = {0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000};
const prometheus::Histogram::BucketBoundaries kTokenSeconds = {0.001, 0.003, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.3, 1};

void Add(const char* name, const char* help, MetricType type, double value, std::vector<MetricFamily>* families) {
  MetricFamily family;
  family.name = name;
  family.help = help;
  family.type = type;
  prometheus::ClientMetric metric;
  if (type == MetricType::Counter) {
    metric.counter.value = value;
  } else {
    metric.gauge.value = value;
  }
  family.metric.push_back(metric);
  families->push_back(std::move(family));
}

// One counter for each place in a block of drafts.
void AddByPlace(const char* name, const char* help, const std::vector<int64_t>& values,
                std::vector<MetricFamily>* families) {
  if (values.empty()) return;
  MetricFamily family;
  family.name = name;
  family.help = help;
  family.type = MetricType::Counter;
  for (size_t place = 0; place < values.size(); ++place) {
    prometheus::ClientMetric metric;
    metric.label.push_back({"place", std::to_string(place)});
    metric.counter.value = static_cast<double>(values[place]);
    family.metric.push_back(std::move(metric));
  }
  families->push_back(std::move(family));
}

std::string ProtocolName(recipe::Protocol protocol) {
  switch (protocol) {
    case recipe::Protocol::kChat:
      return "chat";
    case recipe::Protocol::kResponses:
      return "responses";
    case recipe::Protocol::kMessages:
      return "messages";
    case recipe::Protocol::kCompletions:
      return "completions";
  }
  return "unknown";
}

}  // namespace

std::vector<MetricFamily> EngineMetrics::Collect() const {
  const EngineStats s = engine_.Stats();
  std::vector<MetricFamily> f;
  constexpr auto kCounter = MetricType::Counter;
  constexpr auto kGauge = MetricType::Gauge;
  Add("deepinfer_requests_running", "Requests in the batch.", kGauge, static_cast<double>(s.requests_running), &f);
  Add("deepinfer_requests_waiting", "Requests that wait for a place in it.", kGauge, static_cast<double>(s.requests_waiting), &f);
  Add("deepinfer_steps_total", "Forward passes.", kCounter, static_cast<double>(s.steps), &f);
  Add("deepinfer_step_rows_total", "Rows of forward passes.", kCounter, static_cast<double>(s.rows), &f);
  Add("deepinfer_prompt_tokens_total", "Tokens of prompts.", kCounter, static_cast<double>(s.prompt_tokens), &f);
  Add("deepinfer_cached_tokens_total", "Of those, tokens whose KV came from the cache.", kCounter,
      static_cast<double>(s.cached_tokens), &f);
  Add("deepinfer_answer_tokens_total", "Tokens of answers.", kCounter, static_cast<double>(s.answer_tokens), &f);
  Add("deepinfer_preemptions_total", "Requests that lost their place to others.", kCounter, static_cast<double>(s.preemptions), &f);
  Add("deepinfer_masks_late_total", "Times that an answer sat out a step because its grammar's mask was not there.", kCounter,
      static_cast<double>(s.masks_late), &f);
  Add("deepinfer_cache_blocks", "Blocks of the KV cache.", kGauge, static_cast<double>(s.blocks), &f);
  Add("deepinfer_cache_blocks_available", "Blocks that no running request holds.", kGauge, static_cast<double>(s.blocks_available), &f);
  Add("deepinfer_cache_bytes", "Memory of the KV cache.", kGauge, static_cast<double>(s.cache_bytes), &f);
  Add("deepinfer_scratch_bytes", "Memory of a step's intermediate results.", kGauge, static_cast<double>(s.scratch_bytes), &f);
  Add("deepinfer_device_idle_seconds_total", "Time in which the device had nothing to do between steps; 0 on the CPU.", kCounter,
      s.device_idle_seconds, &f);
  AddByPlace("deepinfer_drafts_verified_total", "Drafts verified, by place in their block.", s.drafts_verified, &f);
  AddByPlace("deepinfer_drafts_accepted_total", "Drafts accepted, by place in their block.", s.drafts_accepted, &f);
  if (s.drafts_verified.empty()) return f;
  Add("deepinfer_drafts_made_total", "Drafts drawn, verified or not.", kCounter, static_cast<double>(s.drafts_made), &f);
  Add("deepinfer_draft_gain", "Tokens a second with drafts over those without, as the engine expects; 0: not known yet.", kGauge,
      s.draft_gain, &f);
  Add("deepinfer_draft_calibration_error", "Mean difference of expected and seen acceptance of a draft.", kGauge,
      s.draft_calibration_error, &f);
  Add("deepinfer_draft_schedule_seconds_total", "Time spent on deciding which drafts pay.", kCounter, s.draft_schedule_seconds, &f);
  return f;
}

EngineWatch::EngineWatch(const Engine& engine, std::chrono::duration<double> patience)
    : engine_(engine), patience_(patience), since_(std::chrono::steady_clock::now()) {}

Status EngineWatch::Check() {
  const EngineStats stats = engine_.Stats();
  const auto now = std::chrono::steady_clock::now();
  const std::lock_guard lock(mutex_);
  if (stats.steps != steps_ || stats.requests_running == 0) {
    steps_ = stats.steps;
    since_ = now;
  }
  if (now - since_ <= patience_) return {};
  return Error(Code::kUnavailable, "{} requests run and no step has ended for {:.0f} s", stats.requests_running,
               std::chrono::duration<double>(now - since_).count());
}

AnswerMetrics::AnswerMetrics(prometheus::Registry& registry)
    : answers_(prometheus::BuildCounter()
                   .Name("deepinfer_answers_total")
                   .Help("Answers, by protocol and what became of them.")
                   .Register(registry)),
      first_token_seconds_(prometheus::BuildHistogram()
                               .Name("deepinfer_first_token_seconds")
                               .Help("From a request's first byte to its first token.")
                               .Register(registry)),
      token_seconds_(prometheus::BuildHistogram()
                         .Name("deepinfer_token_seconds")
                         .Help("Mean time between tokens of an answer.")
                         .Register(registry)),
      seconds_(prometheus::BuildHistogram()
                   .Name("deepinfer_answer_seconds")
                   .Help("From a request's first byte to the end of its answer.")
                   .Register(registry)) {}

void AnswerMetrics::Record(const AnswerRecord& record) {
  const std::string protocol = ProtocolName(record.protocol);
  const prometheus::Labels labels = {{"protocol", protocol}};
  answers_.Add({{"protocol", protocol}, {"outcome", std::string(record.outcome)}}).Increment();
  seconds_.Add(labels, kSeconds).Observe(record.seconds);
  if (record.first_token_seconds < 0) return;
  first_token_seconds_.Add(labels, kSeconds).Observe(record.first_token_seconds);
  if (record.answer_tokens < 2) return;
  const double between = (record.seconds - record.first_token_seconds) / static_cast<double>(record.answer_tokens - 1);
  token_seconds_.Add(labels, kTokenSeconds).Observe(between);
}

}  // namespace deepinfer::server
