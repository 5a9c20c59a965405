// SPDX-License-Identifier: Apache-2.0
// One sequence on a loaded model: append tokens, get logits. A prompt is run in chunks, and where only the last logits
// are wanted, later layers run only the rows that those depend on (spec/model.md 8, "exact"): the same bits, less work.
// Used by one thread at a time. The caches belong to the session; model and backend must outlive it.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "engine/loaded_model.h"
#include "model/deepseek_v41/forward.h"

namespace deepinfer::engine {

struct SessionOptions {
  int64_t context_max = 0;  // positions; 0: what the model was made for
  int64_t chunk = 512;      // rows of one forward pass
  backend::Activations activations = backend::Activations::kFp32;
  bool draft_taps = false;  // show Tap::kDraftTaps (set_tap). REQUIRES: the config has a draft
};

enum class Logits { kNone, kLast, kAll };

// From which position on each layer runs, and what it may read; step.h has the meaning of the three.
struct Replay {
  std::vector<int32_t> run_from;      // [num_layers + 1]
  std::vector<int32_t> window_floor;  // [num_layers]
  int32_t global_floor = 0;
};

// The starts of an exact run of positions [begin, end) whose logits are wanted from position `logits_from` on, on
// top of complete windows at `begin` (spec/model.md 8 with P = begin).
Replay ExactReplay(const checkpoint::ModelConfig& config, int32_t begin, int32_t logits_from);

struct AppendRequest {
  std::span<const TokenId> ids;
  Logits logits = Logits::kLast;
  // Image rows: is_image [ids] marks them, embeds (host, [ids, hidden]) replaces their embedding. Empty: text only.
  std::span<const uint8_t> is_image;
  std::span<const float> embeds;
  // Starts of the layers for the positions that this call runs; nullptr: exact.
  const Replay* replay = nullptr;
  // Asked before every chunk; false: kCancelled. Empty: goes on.
  std::function<bool()> go_on;
};

class Session {
 public:
  static Result<std::unique_ptr<Session>> Create(const LoadedModel& loaded, const SessionOptions& options);
  ~Session();

  // Appends and runs tokens. Returns fp32 logits [rows, vocab]: of every new token (kAll), of the last (kLast), or
  // nothing. Errors: kInvalidArgument (an id outside the vocabulary), kResourceExhausted (the context is full; nothing
  // was appended), kDataLoss (a mapped file was damaged: the session is unusable from then on), kCancelled (by `go_on`;
  // the session is as after Clear()).
  Result<std::vector<float>> Append(const AppendRequest& request);

  // Forgets every window row and open compressor group and goes back to `position`; global rows stay as they are. The
  // tokens from `position` on are kept: the next Append runs them again, before its own, with its `replay`.
  // REQUIRES: position <= tokens().size().
  void Rewind(int32_t position);
  // Forgets everything.
  void Clear();

  std::span<const TokenId> tokens() const { return tokens_; }
  int64_t context_max() const { return options_.context_max; }
  int64_t cache_bytes() const;
  int64_t scratch_bytes() const { return model_->scratch_bytes(); }
  void set_tap(model::deepseek_v41::TapFn tap) { tap_ = std::move(tap); }

 private:
  class CacheMemory;
  Session(const LoadedModel& loaded, const SessionOptions& options);

  Status Check(const AppendRequest& request) const;
  // Runs positions [begin, end); appends the logits of positions >= logits_from.
  Status RunChunk(int32_t begin, int32_t end, int32_t logits_from, const Replay& replay, std::vector<float>* logits);
  void FillLookback(int32_t position, int32_t* out) const;

  const LoadedModel& loaded_;
  SessionOptions options_;
  std::unique_ptr<model::deepseek_v41::Model> model_;
  std::unique_ptr<CacheMemory> caches_;
  model::deepseek_v41::TapFn tap_;
  std::vector<TokenId> tokens_;
  std::vector<uint8_t> is_image_;    // [tokens]
  std::vector<float> embeds_;        // of the image rows of the running Append, [ids, hidden]
  int32_t embeds_begin_ = 0;         // position of its first row
  backend::Buffer device_embeds_;
  int32_t computed_ = 0;             // positions run so far
};

}  // namespace deepinfer::engine
