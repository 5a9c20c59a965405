// SPDX-License-Identifier: Apache-2.0
// Draws of a step that the device makes, so that of their logits only tokens travel back, and what log-probabilities are made
// of. Both device and host give the same tokens and the same log-probabilities, to the bit; the host makes those draws that
// Choice::PlanDraw leaves to it, or whose lists are too long, from copied rows of logits. One thread at a time.
#pragma once

#include <algorithm>
#include <optional>
#include <span>
#include <vector>

#include "backend/api/backend.h"
#include "engine/choice.h"

namespace deepinfer::engine {

class DeviceDraws {
 public:
  // Of at most rows_max rows of logits. Does nothing on a backend that cannot draw. Errors: kResourceExhausted.
  static Result<DeviceDraws> Create(backend::Backend& backend, int64_t rows_max, int64_t vocab);

  bool on() const { return backend_ != nullptr && backend_->can_sample(); }
  // A new step with so many rows of logits; the host reads none of them.
  void Begin(size_t rows);
  // The draws of a choice from row `logits_row` on: at `position`, and behind each of `drafts` should all before it be drawn.
  // places [1 + drafts]: where their tokens will be; nothing for those that the host makes, and for those behind a draft
  // that cannot be drawn.
  void Add(Choice* choice, uint32_t position, int32_t logits_row, std::span<const int32_t> drafts,
           std::span<std::optional<size_t>> places);

  // Rows of logits that the host reads, whatever else.
  void LeaveToHost(int32_t logits_row, int32_t rows) { std::fill_n(host_rows_.begin() + logits_row, rows, uint8_t{1}); }

  // Queues the draws and the copies of the rows that the host reads, into their places among `host_logits` [rows, vocab].
  void Queue(const float* device_logits, std::vector<float>* host_logits);
  // After the device was synchronised: a token, or -1 where no token is allowed.
  int32_t token(size_t place) const { return tokens_[TokenPlace(draws_[place])]; }
  std::optional<sampling::Logprobs> logprobs(size_t place) const;

 private:
  // Device memory for lists: of edits, and rows of masks. Draws whose lists find no room are the host's.
  static constexpr size_t kEditsMax = size_t{1} << 18;
  static constexpr size_t kMasksMax = 512;

  struct Draw {
    bool plain = true;
    size_t index = 0;  // among those of its kind
    std::optional<int> logprobs;
    size_t read = 0;   // place in reads_
  };
  size_t TokenPlace(const Draw& draw) const { return draw.plain ? draw.index : plain_.size() + draw.index; }
  // Adds the draw, or says that there is no room. `base`: edits of the choice that are there already, -1 before the first.
  bool AddOne(const DeviceDraw& draw, int32_t logits_row, int32_t* base);
  void QueueReads(const float* device_logits);
  template <typename T>
  void Put(const backend::Buffer& to, const std::vector<T>& values) {
    backend_->CopyToDevice(to.data(), values.data(), values.size() * sizeof(T));
  }

  backend::Backend* backend_ = nullptr;
  int64_t vocab_ = 0;
  size_t draws_max_ = 0, masks_max_ = 0, mask_words_ = 0;
  backend::Buffer device_plain_, device_adjusted_, device_tokens_, device_edits_, device_masks_, device_reads_, device_read_lists_;
  std::vector<Draw> draws_;
  std::vector<backend::SampleDraw> plain_;
  std::vector<backend::AdjustedDraw> adjusted_;
  std::vector<backend::LogitEdit> edits_;
  std::vector<uint32_t> masks_;     // [.., mask_words_]
  std::vector<int32_t> tokens_;     // plain ones, then the adjusted
  std::vector<int32_t> read_lists_;  // rows of logits, then how many of the best
  std::vector<int32_t> read_draws_;  // [reads]: places in draws_
  std::vector<backend::RowLogits> reads_;
  std::vector<uint8_t> host_rows_;  // [rows]: whether the host reads it
};

}  // namespace deepinfer::engine
