// SPDX-License-Identifier: Apache-2.0
// The draft model at work for an executor's slots: committed rows become context keys, and requests that go on get the
// tokens that the model will probably take next. A draft is drawn as its request would draw (settings, penalties, noise of
// the position), so it is the token that the model draws wherever the two distributions agree. Drafts decide how fast an
// answer comes, never what it is. One thread at a time.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "engine/choice.h"
#include "engine/device_draws.h"
#include "engine/loaded_model.h"
#include "model/deepseek_v41/dspark.h"
#include "sched/config.h"

namespace deepinfer::engine {

// How a user asks for drafts: "auto", "on", "off" or a number (EngineOptions::drafts).
struct DraftsSetting {
  int drafts = kDraftsAsTheyPay;  // as ChoiceSettings::drafts
  bool required = false;          // an error where the checkpoint has none
};
Result<DraftsSetting> ParseDrafts(std::string_view text);
// "coupled", "rejection" or "block" (EngineOptions::verification).
Result<spec::Acceptance> ParseVerification(std::string_view text);

struct Drafts {
  int64_t anchor = -1;            // position of the token that the block was made for; -1: no block
  std::vector<int32_t> tokens;    // they follow the newest token of the request
  std::vector<float> confidence;  // [tokens] logits, of spec::Calibration's kind
  std::vector<float> distributions;  // [tokens, vocab]: what they were drawn from, where they will be judged

  void Clear() {
    anchor = -1;
    tokens.clear();
    confidence.clear();
    distributions.clear();
  }
};

struct DraftRequest {
  int32_t slot = 0;
  std::shared_ptr<Choice> choice;
  int32_t newest = 0;    // token, not run yet
  int64_t position = 0;  // its position
  int64_t floor = 0;     // no context key below this position is read
  int32_t drafts = 0;    // at most so many, 1 .. block_size()
  Drafts* out = nullptr;
};

class Drafter {
 public:
  // `windows` of the draft stages. Errors: kNotFound (the checkpoint has no draft), kResourceExhausted.
  static Result<std::unique_ptr<Drafter>> Create(const LoadedModel& loaded, const sched::Config& config,
                                                 backend::Activations activations,
                                                 std::span<const backend::WindowCache> windows);

  int32_t block_size() const { return static_cast<int32_t>(model_->block_size()); }
  int64_t scratch_bytes() const { return model_->scratch_bytes(); }

  // Notes a committed row of the last forward pass, of an answer that `choice` draws; rows of a slot ascend. StoreContext
  // stores all that were noted, or, where there is time, keeps their taps until a few steps have come together.
  struct ContextRow {
    int32_t tap_row = 0;
    int64_t position = 0;
    int32_t slot = 0;
    const Choice* choice = nullptr;
  };
  void AddContext(const ContextRow& row);
  void StoreContext(const model::deepseek_v41::DraftTaps& taps, bool now);
  // Rows that wait, of slots that do not go on: drops them, since their pages may be others' by now. `goes_on` [slots]: who
  // draws the slot's next token. Calls `dropped` for each.
  void DropWaiting(std::span<const Choice* const> goes_on, const std::function<void(const ContextRow&)>& dropped);

  // Queues drafts for all requests; Collect waits for them and fills their `out`. Pages must be mapped for block_size()
  // positions from each newest token on. On a device that draws, the drafts of a block are drawn there one behind the other
  // (Choice::DraftsAhead); for other requests the host has a look after each draft.
  void Queue(std::vector<DraftRequest> requests);
  // Errors: kInternal (a device error).
  Status Collect();
  bool pending() const { return !chained_.empty(); }

  // Runs every shape that is recorded; `taps` are those of a step of as many rows. Returns how many are new.
  Result<int64_t> WarmUpContext(const model::deepseek_v41::DraftTaps& taps, int64_t rows);
  Result<int64_t> WarmUpBlocks(int32_t slots);

 private:
  explicit Drafter(const LoadedModel& loaded) : loaded_(loaded) {}
  void Store(const float* taps, std::span<const ContextRow> rows);
  // Fills anchors_ and returns the most drafts that one of them wants.
  int32_t ListAnchors(std::span<const DraftRequest> requests);
  // Whether the request's drafts are drawn in a chain; then its first draw is in chain_first_.
  bool ListInChain(const DraftRequest& request);
  void QueueChain();
  // Drafts of requests whose draws are the host's.
  void RunHosted(std::span<DraftRequest> requests);
  // Draft j of a request, from its row of logits or from the device's draw.
  std::optional<int32_t> DrawOne(DraftRequest* request, size_t r, int32_t j);
  // Draws draft j of those that go on. False: nobody does.
  bool Draw(std::span<DraftRequest> requests, int32_t j);
  void Keep(Status status) {
    if (status_.ok()) status_ = std::move(status);
  }

  const LoadedModel& loaded_;
  model::deepseek_v41::DraftWeights weights_;
  std::unique_ptr<model::deepseek_v41::DraftModel> model_;
  std::vector<backend::WindowCache> windows_;
  backend::Buffer row_index_, rows_;  // logits of one draft of every request, next to each other
  std::vector<ContextRow> noted_;
  std::vector<ContextRow> waiting_;  // row i: its taps lie in row tap_row of waiting_taps_
  backend::Buffer waiting_taps_, waiting_index_;
  int32_t waiting_end_ = 0;  // rows of waiting_taps_ in use
  std::vector<DraftRequest> chained_;  // between Queue and Collect
  int32_t chain_drafts_ = 0;
  size_t chain_stride_ = 0;              // the model's token_stride() then: a block behind the chain changes it
  std::vector<int32_t> chain_tokens_;    // [drafts, chained], chain_stride_ apart
  std::vector<float> chain_confidence_;  // [chained, drafts]
  Status status_;                        // of what was waited for before Collect
  // Scratch.
  std::vector<model::deepseek_v41::DraftAnchor> anchors_;
  std::vector<backend::AdjustedDraw> chain_first_;     // [chained]: of their first drafts
  std::vector<backend::SampleDraw> chain_draws_;       // of all drafts, if all are plain
  std::vector<backend::AdjustedDraw> chain_adjusted_;  // else
  std::vector<backend::LogitEdit> chain_edits_;
  bool chain_plain_ = true;
  std::vector<int32_t> tap_rows_, positions_, slots_, index_, previous_;
  std::vector<uint8_t> open_;
  std::vector<float> logits_, confidence_;
  DeviceDraws draws_;
  std::vector<std::optional<size_t>> places_;  // [requests]: of their draws in draws_
};

}  // namespace deepinfer::engine
