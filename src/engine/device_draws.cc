// SPDX-License-Identifier: Apache-2.0
#include "engine/device_draws.h"

#include <algorithm>

namespace deepinfer::engine {

Result<DeviceDraws> DeviceDraws::Create(backend::Backend& backend, int64_t rows_max, int64_t vocab) {
  DeviceDraws draws;
  draws.backend_ = &backend;
  draws.vocab_ = vocab;
  if (!draws.on()) return Result<DeviceDraws>(std::move(draws));
  const auto rows = static_cast<size_t>(rows_max);
  draws.draws_max_ = rows;
  draws.masks_max_ = std::min(rows, kMasksMax);
  draws.mask_words_ = static_cast<size_t>((vocab + 31) / 32);
  const std::pair<backend::Buffer*, size_t> buffers[] = {
      {&draws.device_plain_, rows * sizeof(backend::SampleDraw)},
      {&draws.device_adjusted_, rows * sizeof(backend::AdjustedDraw)},
      {&draws.device_tokens_, rows * sizeof(int32_t)},
      {&draws.device_edits_, kEditsMax * sizeof(backend::LogitEdit)},
      {&draws.device_masks_, draws.masks_max_ * draws.mask_words_ * sizeof(uint32_t)},
      {&draws.device_reads_, rows * sizeof(backend::RowLogits)},
      {&draws.device_read_lists_, 3 * rows * sizeof(int32_t)},
  };
  for (const auto& [buffer, size_bytes] : buffers) {
    DI_ASSIGN_OR_RETURN(*buffer, backend.Allocate(size_bytes));
  }
  return Result<DeviceDraws>(std::move(draws));
}

void DeviceDraws::Begin(size_t rows) {
  draws_.clear();
  plain_.clear();
  adjusted_.clear();
  edits_.clear();
  masks_.clear();
  host_rows_.assign(rows, 0);
}

bool DeviceDraws::AddOne(const DeviceDraw& draw, int32_t logits_row, int32_t* base) {
  if (draws_.size() >= draws_max_) return false;
  backend::AdjustedDraw adjusted = draw.draw;
  adjusted.draw.logits_row = logits_row;
  if (draw.plain) {
    draws_.push_back({.plain = true, .index = plain_.size(), .logprobs = draw.logprobs});
    plain_.push_back(adjusted.draw);
    return true;
  }
  const size_t edits = draw.overrides.size() + (*base < 0 ? draw.edits.size() : 0);
  if (edits_.size() + edits > kEditsMax || (!draw.mask.empty() && masks_.size() >= masks_max_ * mask_words_)) return false;
  if (*base < 0) {
    *base = static_cast<int32_t>(edits_.size());
    edits_.insert(edits_.end(), draw.edits.begin(), draw.edits.end());
  }
  // Behind supposed tokens there may be edits that the base does not have; they are among the overrides.
  adjusted.first_edit = *base;
  adjusted.first_override = static_cast<int32_t>(edits_.size());
  adjusted.num_overrides = static_cast<int32_t>(draw.overrides.size());
  edits_.insert(edits_.end(), draw.overrides.begin(), draw.overrides.end());
  if (!draw.mask.empty()) {
    adjusted.mask = static_cast<int32_t>(masks_.size() / mask_words_);
    const auto words = draw.mask.first(mask_words_);
    masks_.insert(masks_.end(), words.begin(), words.end());
  }
  draws_.push_back({.plain = false, .index = adjusted_.size(), .logprobs = draw.logprobs});
  adjusted_.push_back(adjusted);
  return true;
}

void DeviceDraws::Add(Choice* choice, uint32_t position, int32_t logits_row, std::span<const int32_t> drafts,
                      std::span<std::optional<size_t>> places) {
  int32_t base = -1, num_edits = 0;
  size_t supposed = 0;
  std::fill(places.begin(), places.end(), std::nullopt);
  for (size_t r = 0; r < places.size(); ++r) {
    const auto row = logits_row + static_cast<int32_t>(r);
    std::optional<DeviceDraw> draw;
    if (on()) draw = choice->PlanDraw(position + static_cast<uint32_t>(r), vocab_);
    if (r == 0 && draw) num_edits = static_cast<int32_t>(draw->edits.size());
    if (draw && AddOne(*draw, row, &base)) {
      if (!draws_.back().plain) adjusted_.back().num_edits = num_edits;
      places[r] = draws_.size() - 1;
    } else {
      host_rows_[static_cast<size_t>(row)] = 1;
    }
    if (!on() || r + 1 == places.size()) continue;
    if (!choice->Suppose(drafts[r])) break;
    ++supposed;
  }
  if (supposed > 0) choice->DropDrafts(supposed);
}

void DeviceDraws::QueueReads(const float* device_logits) {
  read_draws_.clear();
  for (size_t i = 0; i < draws_.size(); ++i) {
    if (!draws_[i].logprobs) continue;
    draws_[i].read = read_draws_.size();
    read_draws_.push_back(static_cast<int32_t>(i));
  }
  const size_t n = read_draws_.size();
  if (n == 0) return;
  read_lists_.clear();
  for (const int32_t i : read_draws_) {
    const Draw& draw = draws_[static_cast<size_t>(i)];
    read_lists_.push_back(draw.plain ? plain_[draw.index].logits_row : adjusted_[draw.index].draw.logits_row);
  }
  for (const int32_t i : read_draws_) read_lists_.push_back(static_cast<int32_t>(TokenPlace(draws_[static_cast<size_t>(i)])));
  for (const int32_t i : read_draws_) {
    read_lists_.push_back(static_cast<int32_t>(std::min<int64_t>(*draws_[static_cast<size_t>(i)].logprobs, vocab_)));
  }
  Put(device_read_lists_, read_lists_);
  const auto* lists = device_read_lists_.as<int32_t>();
  backend_->ReadLogits({.rows = static_cast<int64_t>(n),
                        .vocab = vocab_,
                        .logits = device_logits,
                        .logits_rows = lists,
                        .tokens = device_tokens_.as<int32_t>(),
                        .token_at = lists + n,
                        .best = lists + 2 * n,
                        .out = device_reads_.as<backend::RowLogits>()});
  reads_.resize(n);
  backend_->CopyToHost(reads_.data(), device_reads_.data(), n * sizeof(backend::RowLogits));
}

void DeviceDraws::Queue(const float* device_logits, std::vector<float>* host_logits) {
  const auto row_bytes = static_cast<size_t>(vocab_) * sizeof(float);
  if (host_logits->size() < host_rows_.size() * static_cast<size_t>(vocab_)) {
    host_logits->resize(host_rows_.size() * static_cast<size_t>(vocab_));
  }
  if (!plain_.empty()) {
    Put(device_plain_, plain_);
    backend_->Sample({.rows = static_cast<int64_t>(plain_.size()),
                      .vocab = vocab_,
                      .logits = device_logits,
                      .draws = device_plain_.as<backend::SampleDraw>(),
                      .tokens = device_tokens_.as<int32_t>()});
  }
  if (!adjusted_.empty()) {
    Put(device_adjusted_, adjusted_);
    Put(device_edits_, edits_);
    Put(device_masks_, masks_);
    backend_->SampleAdjusted({.rows = static_cast<int64_t>(adjusted_.size()),
                              .vocab = vocab_,
                              .logits = device_logits,
                              .draws = device_adjusted_.as<backend::AdjustedDraw>(),
                              .edits = device_edits_.as<backend::LogitEdit>(),
                              .masks = device_masks_.as<uint32_t>(),
                              .mask_words = static_cast<int64_t>(mask_words_),
                              .tokens = device_tokens_.as<int32_t>() + plain_.size()});
  }
  if (!draws_.empty()) {
    QueueReads(device_logits);
    tokens_.resize(draws_.size());
    backend_->CopyToHost(tokens_.data(), device_tokens_.data(), tokens_.size() * sizeof(int32_t));
  }
  // Neighbours in one copy.
  for (size_t begin = 0; begin < host_rows_.size();) {
    size_t end = begin;
    while (end < host_rows_.size() && host_rows_[end] != 0) ++end;
    const size_t offset = begin * static_cast<size_t>(vocab_);
    if (end > begin) backend_->CopyToHost(host_logits->data() + offset, device_logits + offset, (end - begin) * row_bytes);
    begin = end + 1;
  }
}

std::optional<sampling::Logprobs> DeviceDraws::logprobs(size_t place) const {
  const Draw& draw = draws_[place];
  if (!draw.logprobs || token(place) < 0) return std::nullopt;
  const backend::RowLogits& row = reads_[draw.read];
  std::vector<sampling::TokenLogprob> best(static_cast<size_t>(std::min<int64_t>(*draw.logprobs, vocab_)));
  for (size_t i = 0; i < best.size(); ++i) best[i] = {.token = row.tokens[i], .logprob = row.logits[i]};
  return sampling::FinishLogprobs(sampling::LogSumExp(row.top, row.sum), row.chosen, std::move(best));
}

}  // namespace deepinfer::engine
