// SPDX-License-Identifier: Apache-2.0
#include "spec/draft_schedule.h"

#include <algorithm>
#include <utility>

#include "core/check.h"

namespace deepinfer::spec {
namespace {

constexpr int32_t kFirstProbes = 8;
constexpr int64_t kIntervalMin = 128, kIntervalMax = 4096;  // steps between probes
constexpr int64_t kDecideEvery = 32;                        // steps
// Batches of kept blocks that an estimate averages over.
constexpr size_t kBatchesMax = 16;
// While drafts pay, every so many blocks are made whole and verified as a whole: what lies behind the usual depth, and the
// time of such steps, would be forgotten else.
constexpr int64_t kWholeEvery = 64;
// And every so many steps run without drafts, the sooner the less they pay: else nobody would notice that these have become
// the better ones.
constexpr int64_t kPlainEvery = 16, kPlainEveryClear = 128;
constexpr double kClearGain = 1.2;
// Drafts must pay more than what estimates are worth.
constexpr double kHurdle = 1.02;
// A probe takes one request in so many, but one at least.
constexpr int32_t kProbeShare = 8;

}  // namespace

DraftSchedule::DraftSchedule(int32_t requests_max, int32_t block, StopRule stop)
    : requests_max_(requests_max),
      block_(block),
      stop_(stop),
      calibration_(block),
      chooser_(requests_max, block),
      probe_interval_(kIntervalMin),
      probes_left_(kFirstProbes),
      kept_(kKept * static_cast<size_t>(block)),
      survival_(static_cast<size_t>(requests_max) * static_cast<size_t>(block)),
      limits_(static_cast<size_t>(requests_max)),
      lengths_(static_cast<size_t>(requests_max)),
      cost_(static_cast<size_t>(requests_max) * static_cast<size_t>(block) + 1) {
  DI_CHECK(block <= kDepthsMax);
}

void DraftSchedule::Verify(std::span<VerifyRequest> requests, const StepShape& base, double sure_tokens) {
  ++steps_;
  const auto block = static_cast<size_t>(block_);
  StepShape shape = base;
  size_t free = 0;
  std::fill(survival_.begin(), survival_.end(), 0.0F);
  for (VerifyRequest& request : requests) {
    request.drafts = request.limit;
    if (request.fixed || probing_) {
      shape.rows += request.drafts;
      sure_tokens += 0.5 * request.drafts;
      continue;
    }
    limits_[free] = request.limit;
    calibration_.Survivals(request.bucket, request.confidence, std::span(survival_).subspan(free * block, request.confidence.size()));
    ++free;
  }
  if (free == 0 || *std::max_element(limits_.begin(), limits_.begin() + static_cast<std::ptrdiff_t>(free)) == 0) {
    for (VerifyRequest& request : requests) request.drafts = request.fixed || probing_ ? request.drafts : 0;
    return;
  }
  const auto cost = std::span(cost_).first(free * block + 1);
  step_cost_.Table(shape, base.rows > 0 ? base.context / base.rows : 0, cost);
  // The block that follows is part of what a cycle takes.
  const double next_block = depth_ > 0 ? BlockSeconds(static_cast<int32_t>(free), depth_) : 0;
  for (double& seconds : cost) seconds += next_block;
  chooser_.Choose({.drafts = block_,
                   .survival = std::span(survival_).first(free * block),
                   .limits = std::span(limits_).first(free),
                   .sure_tokens = sure_tokens,
                   .cost = cost,
                   .stop = stop_},
                  std::span(lengths_).first(free));
  size_t at = 0;
  for (VerifyRequest& request : requests) {
    if (!request.fixed) request.drafts = lengths_[at++];
  }
}

void DraftSchedule::Observe(const VerifyRequest& request, int32_t accepted, bool cut) {
  calibration_.Observe(request.bucket, request.confidence, cut ? accepted : request.drafts, accepted);
}

// Rows of the stages and heads make up a block's time.
double DraftSchedule::BlockSeconds(int32_t requests, int32_t depth) const {
  return requests == 0 ? 0 : block_cost_.Seconds({.rows = requests * (block_ + depth)});
}

void DraftSchedule::ObserveBlock(int32_t requests, int32_t depth, double seconds) {
  block_cost_.Observe({.rows = requests * (block_ + depth)}, seconds);
}

void DraftSchedule::NoteConfidence(int bucket, std::span<const float> confidence) {
  if (static_cast<int32_t>(confidence.size()) < block_) return;
  const size_t at = kept_count_++ % kKept * static_cast<size_t>(block_);
  calibration_.Survivals(bucket, confidence, std::span(kept_).subspan(at, static_cast<size_t>(block_)));
}

double DraftSchedule::Rate(int32_t requests, int32_t depth, const StepShape& next) {
  const auto block = static_cast<size_t>(block_);
  const auto n = static_cast<size_t>(requests);
  const size_t kept = std::min(kept_count_, kKept);
  const auto cost = std::span(cost_).first(n * block + 1);
  step_cost_.Table(next, next.rows > 0 ? next.context / next.rows : 0, cost);
  const double block_seconds = BlockSeconds(requests, depth);
  for (double& seconds : cost) seconds += block_seconds;
  std::fill_n(limits_.begin(), n, depth);
  double tokens = 0, time = 0;
  const size_t batches = std::clamp<size_t>(kept / n, 1, kBatchesMax);
  for (size_t b = 0; b < batches; ++b) {
    for (size_t r = 0; r < n; ++r) {
      const size_t from = (b * n + r) % kept * block;
      std::copy_n(kept_.begin() + static_cast<std::ptrdiff_t>(from), block, survival_.begin() + static_cast<std::ptrdiff_t>(r * block));
    }
    const RowChoice choice = chooser_.Choose({.drafts = block_,
                                              .survival = std::span(survival_).first(n * block),
                                              .limits = std::span(limits_).first(n),
                                              .sure_tokens = static_cast<double>(requests),
                                              .cost = cost,
                                              .stop = stop_},
                                             std::span(lengths_).first(n));
    tokens += choice.tokens;
    time += cost[static_cast<size_t>(choice.rows)];
  }
  return tokens / time;
}

void DraftSchedule::Decide(int32_t requests, const StepShape& next) {
  decide_at_ = steps_ + kDecideEvery;
  decided_for_ = requests;
  if (kept_count_ == 0) return;
  const double plain = requests / step_cost_.Seconds(next);
  double best = plain * (depth_ > 0 ? 1 : kHurdle);
  const int32_t before = depth_;
  depth_ = 0;
  gain_ = 0;
  for (int32_t depth = 1; depth <= block_; ++depth) {
    const double rate = Rate(requests, depth, next);
    gain_ = std::max(gain_, rate / plain);
    if (rate <= best) continue;
    best = rate;
    depth_ = depth;
  }
  if (depth_ > 0 && before == 0) probe_interval_ = kIntervalMin;
}

int32_t DraftSchedule::Depth(int32_t requests, const StepShape& next) {
  DI_CHECK(requests <= requests_max_);
  probing_ = false;
  participants_ = requests;
  if (requests == 0) return 0;
  if (steps_ >= decide_at_ || requests > 2 * decided_for_ || 2 * requests < decided_for_) Decide(requests, next);
  if (probes_left_ > 0 && std::exchange(plain_next_, !plain_next_)) return 0;
  if (depth_ > 0 && steps_ >= plain_at_) {
    plain_at_ = steps_ + (gain_ > kClearGain ? kPlainEveryClear : kPlainEvery);
    return 0;
  }
  if (probes_left_ > 0 || (depth_ == 0 && steps_ >= next_probe_)) {
    if (probes_left_ > 0) {
      --probes_left_;
    } else {
      probe_interval_ = std::min(probe_interval_ * 2, kIntervalMax);
    }
    probing_ = true;
    participants_ = std::max(1, requests / kProbeShare);
    next_probe_ = steps_ + probe_interval_;
    decide_at_ = steps_ + 1;
    return block_;
  }
  if (depth_ > 0 && steps_ % kWholeEvery == 0) return block_;
  return depth_;
}

}  // namespace deepinfer::spec
