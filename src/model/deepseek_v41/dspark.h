// SPDX-License-Identifier: Apache-2.0
// The draft model, DSpark (spec/dspark.md 1-5): from what the trunk leaves behind to a block of drafted tokens, as calls
// of backend ops, for many requests at once. One cycle of a request whose positions up to p are committed:
//
//   StoreContext   the taps of newly committed rows become context keys: one window row per position in every stage
//   RunBlock       the anchor (the sampled token of position p + 1, not yet run) and noise tokens at p + 2 ...: base logits
//   Next, Next ..  for draft j: the Markov term of the token before it, and its confidence
//
// or, on a device that draws:
//   RunChain       the same, the drafts drawn on the device one behind the other, nothing waited for
//
// Row j of a block predicts position p + 2 + j. The rows of a block see each other, so a block always has all its rows;
// who wants fewer drafts asks for the heads of the first rows alone. What a request gets never depends on the others.
//
// Draft windows are pages like those of the layers (WindowCache). Context keys are a function of the committed tokens
// alone. A block leaves its own keys at p + 1 .. p + block size, behind everything that may be read: pages must be mapped
// there, and StoreContext overwrites them when their positions are committed.
//
// Owns the scratch memory; used by one thread at a time. Weights and backend must outlive it.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "backend/api/backend.h"
#include "checkpoint/config.h"
#include "model/deepseek_v41/forward.h"
#include "model/deepseek_v41/weights.h"

namespace deepinfer::model::deepseek_v41 {

struct DraftOptions {
  int64_t context_rows_max = 512;  // rows of one StoreContext
  int64_t requests_max = 64;       // requests of one RunBlock
  backend::Activations activations = backend::Activations::kFp32;
};

// Committed rows, those of a request next to each other and ascending in position.
struct DraftContext {
  const float* taps = nullptr;        // device, as Model::draft_taps has them
  std::span<const int32_t> tap_rows;  // which of them to take
  std::span<const int32_t> positions;
  std::span<const int32_t> requests;  // rows of the windows' page tables
};

// How the drafts of a chain are drawn: draft j of anchor r by element j * anchors + r of one of the lists; their logits_row
// is not looked at.
struct ChainDraws {
  std::span<const backend::SampleDraw> plain;
  std::span<const backend::AdjustedDraw> adjusted;  // without overrides and masks
  std::span<const backend::LogitEdit> edits;        // of those; at most kChainEditsMax
};
inline constexpr size_t kChainEditsMax = size_t{1} << 16;

struct DraftAnchor {
  int32_t request = 0;   // row of the windows' page tables
  int32_t token = 0;
  int32_t position = 0;  // p + 1
  int32_t floor = 0;     // no context key below this position is read: windows may begin later than they could
};

class DraftModel {
 public:
  // `config` is the trunk's. Reserves the scratch memory on the weights' backend. Errors: kResourceExhausted.
  static Result<std::unique_ptr<DraftModel>> Create(const checkpoint::ModelConfig& config, const DraftWeights& weights,
                                                    backend::Backend& backend, const DraftOptions& options);
  ~DraftModel();

  int64_t num_stages() const;
  int64_t block_size() const;  // drafts of a block

  // Queues the projection of context rows and stores their keys; windows [num_stages].
  void StoreContext(const DraftContext& rows, std::span<const backend::WindowCache> windows);

  // Queues one block for each anchor, in ascending order of request, with the heads of its first `drafts` rows.
  // REQUIRES: at most requests_max, valid ids, and drafts in 1 .. block_size().
  void RunBlock(std::span<const DraftAnchor> anchors, std::span<const backend::WindowCache> windows, int64_t drafts);

  // Queues the heads of the next draft of all requests of the block; previous [requests] is the token before it: the
  // anchor, then the draft that the caller chose. REQUIRES: called at most `drafts` times after a RunBlock.
  void Next(std::span<const int32_t> previous);

  // RunBlock, and all its drafts drawn on the device, each from the heads behind the draft before it. Where no logit is a
  // number, token 0 is drafted.
  // REQUIRES: the backend can sample; as RunBlock.
  void RunChain(std::span<const DraftAnchor> anchors, std::span<const backend::WindowCache> windows, int64_t drafts,
                const ChainDraws& draws);
  // Of the last RunChain: draft j of all anchors, device [anchors]; those of draft j + 1 lie token_stride() behind.
  const int32_t* tokens(int64_t j) const;
  int64_t token_stride() const;
  // The numbers of anchors that chains are recorded for, ascending; none where the backend does not record. The most rows
  // of a StoreContext that is. How many were.
  std::vector<int64_t> recorded_sizes() const;
  int64_t recorded_context_rows_max() const;
  int64_t recordings() const;

  // Of the last RunBlock, complete for the drafts that Next was called for; overwritten by the next RunBlock. Of a
  // RunChain the confidence alone.
  // Draft j of anchor r: logits [r, j, :] of shape [requests, drafts, vocab], confidence [r, j]. Device, fp32. The
  // confidence is a logit: its sigmoid estimates how likely the draft is accepted if all before it are.
  const float* logits() const;
  const float* confidence() const;

  int64_t scratch_bytes() const;

 private:
  struct Impl;
  explicit DraftModel(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace deepinfer::model::deepseek_v41
