// SPDX-License-Identifier: Apache-2.0
// Whether drafts pay, and which: for each step how many drafts of each request are verified, and for how many the next block
// is made. Decides from what was seen: survival probabilities (confidence.h), the time of steps and blocks (step_cost.h).
// Under coupled noise the tokens are the same whatever it decides; it decides how soon they come. Otherwise it decides about
// each draft with what was known before that was drawn (StopRule::kFirstLoss), so that the tokens keep their distribution:
// how deep blocks are, before they are made; how many drafts are verified, one after the other.
//
//   per step:  Verify -> run the step -> ObserveStep, Observe for each request -> Depth -> run the block -> ObserveBlock
//
// While drafts do not pay, none are made, but for a probe now and then: a block that is verified as a whole, by a few of the
// requests, so that times and survivals stay known. Probes are rare: at the start eight, then ever rarer. While drafts pay,
// some steps run without, for the same reason.
// Allocates nothing after construction; one thread at a time.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "spec/confidence.h"
#include "spec/row_choice.h"
#include "spec/step_cost.h"

namespace deepinfer::spec {

struct VerifyRequest {
  std::span<const float> confidence;  // of the drafts that are at hand
  int bucket = 0;                     // TemperatureBucket
  int32_t limit = 0;                  // at most so many of them
  bool fixed = false;                 // all of them, whatever it costs
  int32_t drafts = 0;                 // out: to verify
};

class DraftSchedule {
 public:
  // `stop`: kFirstLoss where the tokens depend on what is verified (row_choice.h).
  DraftSchedule(int32_t requests_max, int32_t block, StopRule stop = StopRule::kBest);

  // Fills `drafts` of every request. `base`: the step without any drafts; sure_tokens: what it yields then.
  void Verify(std::span<VerifyRequest> requests, const StepShape& base, double sure_tokens);

  void ObserveStep(const StepShape& shape, double seconds) { step_cost_.Observe(shape, seconds); }
  // A request's drafts were verified: the first `accepted` stand. `cut`: the answer ended there, so the next one tells
  // nothing.
  void Observe(const VerifyRequest& request, int32_t accepted, bool cut);

  // How many drafts the block of the next step should have, for `requests` that let it decide; 0: no block.
  int32_t Depth(int32_t requests, const StepShape& next);
  // Of the block that Depth asked for: how many of the requests take part (all, unless it is a probe).
  int32_t Participants() const { return participants_; }
  // A block of `depth` drafts was made; its confidences, one request after the other.
  void ObserveBlock(int32_t requests, int32_t depth, double seconds);
  void NoteConfidence(int bucket, std::span<const float> confidence);

  // Whether context keys are worth storing: drafts pay, or a probe comes so soon that it should find a window of them.
  bool wants_context() const { return depth_ > 0 || probes_left_ > 0 || steps_ + kContextNotice >= next_probe_; }
  // Whether the next steps should have room for drafts.
  bool wants_rows() const { return depth_ > 0 || probes_left_ > 0 || steps_ + kProbeNotice >= next_probe_; }
  const Calibration& calibration() const { return calibration_; }
  double expected_gain() const { return gain_; }  // tokens/s with drafts over those without, as last estimated

 private:
  static constexpr int32_t kProbeNotice = 4;     // steps
  static constexpr int32_t kContextNotice = 64;  // steps
  static constexpr size_t kKept = 64;         // survivals of the last whole blocks
  static constexpr int kDepthsMax = 64;

  double BlockSeconds(int32_t requests, int32_t depth) const;
  // Tokens/s of `requests` requests whose blocks have `depth` drafts, as the kept survivals would have it.
  double Rate(int32_t requests, int32_t depth, const StepShape& next);
  void Decide(int32_t requests, const StepShape& next);

  const int32_t requests_max_, block_;
  const StopRule stop_;
  Calibration calibration_;
  StepCost step_cost_, block_cost_;
  RowChooser chooser_;
  int64_t steps_ = 0;
  int64_t decide_at_ = 0;
  int64_t next_probe_ = 0, probe_interval_;
  int64_t plain_at_ = 0;     // while drafts pay: the next step without
  bool plain_next_ = true;   // the first probes and steps without drafts take turns
  int32_t probes_left_;
  bool probing_ = false;  // the block at hand is verified as a whole
  int32_t depth_ = 0;     // while drafts pay
  int32_t participants_ = 0;
  int32_t decided_for_ = 0;
  double gain_ = 0;
  std::vector<float> kept_;  // [kKept, block]
  size_t kept_count_ = 0;
  // Scratch.
  std::vector<float> survival_;
  std::vector<int32_t> limits_, lengths_;
  std::vector<double> cost_;
};

}  // namespace deepinfer::spec
