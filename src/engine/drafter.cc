// SPDX-License-Identifier: Apache-2.0
#include "engine/drafter.h"

#include <algorithm>
#include <charconv>

namespace deepinfer::engine {

using model::deepseek_v41::DraftAnchor;
using model::deepseek_v41::DraftModel;

namespace {

// Committed rows that may wait for their context keys: as many as make the projection of one cheap.
constexpr int32_t kWaitingMax = 32;

int64_t TapBytes(const checkpoint::ModelConfig& config) {
  return static_cast<int64_t>(config.draft.target_layers.size()) * config.hidden_size * static_cast<int64_t>(sizeof(float));
}

}  // namespace

Result<DraftsSetting> ParseDrafts(std::string_view text) {
  if (text == "auto") return DraftsSetting{};
  if (text == "on") return DraftsSetting{.required = true};
  if (text == "off") return DraftsSetting{.drafts = 0};
  DraftsSetting setting{.required = true};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), setting.drafts);
  if (error == std::errc() && end == text.data() + text.size() && setting.drafts >= 0) return setting;
  return Error(Code::kInvalidArgument, "drafts \"{}\": expected auto, on, off or a number", text);
}

Result<spec::Acceptance> ParseVerification(std::string_view text) {
  if (text == "coupled") return spec::Acceptance::kCoupled;
  if (text == "rejection") return spec::Acceptance::kRejection;
  if (text == "block") return spec::Acceptance::kBlock;
  return Error(Code::kInvalidArgument, "verification \"{}\": expected coupled, rejection or block", text);
}

Result<std::unique_ptr<Drafter>> Drafter::Create(const LoadedModel& loaded, const sched::Config& config,
                                                 backend::Activations activations,
                                                 std::span<const backend::WindowCache> windows) {
  std::unique_ptr<Drafter> drafter(new Drafter(loaded));
  backend::Backend& device = loaded.backend();
  DI_ASSIGN_OR_RETURN(drafter->weights_,
                      model::deepseek_v41::BindDraftWeights(loaded.checkpoint(), loaded.weights(), device, loaded.activations()));
  DI_ASSIGN_OR_RETURN(drafter->model_, DraftModel::Create(loaded.config(), drafter->weights_, device,
                                                          {.context_rows_max = std::max(config.step_rows_max, kWaitingMax),
                                                           .requests_max = config.slots,
                                                           .activations = activations}));
  drafter->windows_.assign(windows.begin(), windows.end());
  const auto slots = static_cast<size_t>(config.slots);
  DI_ASSIGN_OR_RETURN(drafter->row_index_, device.Allocate(slots * sizeof(int32_t)));
  DI_ASSIGN_OR_RETURN(drafter->rows_,
                      device.Allocate(slots * static_cast<size_t>(loaded.config().vocab_size) * sizeof(float)));
  DI_ASSIGN_OR_RETURN(drafter->waiting_index_, device.Allocate(kWaitingMax * sizeof(int32_t)));
  DI_ASSIGN_OR_RETURN(drafter->waiting_taps_, device.Allocate(static_cast<size_t>(kWaitingMax * TapBytes(loaded.config()))));
  DI_ASSIGN_OR_RETURN(drafter->draws_, DeviceDraws::Create(device, config.slots, loaded.config().vocab_size));
  return drafter;
}

void Drafter::AddContext(const ContextRow& row) { noted_.push_back(row); }

void Drafter::Store(const float* taps, std::span<const ContextRow> rows) {
  if (rows.empty()) return;
  tap_rows_.clear();
  positions_.clear();
  slots_.clear();
  for (const ContextRow& row : rows) {
    tap_rows_.push_back(row.tap_row);
    positions_.push_back(static_cast<int32_t>(row.position));
    slots_.push_back(row.slot);
  }
  model_->StoreContext({.taps = taps, .tap_rows = tap_rows_, .positions = positions_, .requests = slots_}, windows_);
}

void Drafter::StoreContext(const model::deepseek_v41::DraftTaps& taps, bool now) {
  const auto noted = static_cast<int32_t>(noted_.size());
  if (now || waiting_end_ + noted > kWaitingMax) {
    Store(waiting_taps_.as<float>(), waiting_);
    waiting_.clear();
    waiting_end_ = 0;
    for (ContextRow& row : noted_) row.tap_row += taps.first;
    Store(taps.values, noted_);
  } else if (noted > 0) {
    tap_rows_.clear();
    for (ContextRow& row : noted_) {
      tap_rows_.push_back(taps.first + row.tap_row);
      row.tap_row = waiting_end_ + static_cast<int32_t>(tap_rows_.size()) - 1;
      waiting_.push_back(row);
    }
    backend::Backend& device = loaded_.backend();
    const int64_t row_bytes = TapBytes(loaded_.config());
    device.CopyToDevice(waiting_index_.data(), tap_rows_.data(), tap_rows_.size() * sizeof(int32_t));
    device.GatherRows({.rows = noted,
                       .row_bytes = row_bytes,
                       .src = taps.values,
                       .index = waiting_index_.as<int32_t>(),
                       .dst = waiting_taps_.as<std::byte>() + waiting_end_ * row_bytes});
    waiting_end_ += noted;
  }
  noted_.clear();
}

void Drafter::DropWaiting(std::span<const Choice* const> goes_on, const std::function<void(const ContextRow&)>& dropped) {
  std::erase_if(waiting_, [&](const ContextRow& row) {
    if (goes_on[static_cast<size_t>(row.slot)] == row.choice) return false;
    dropped(row);
    return true;
  });
}

std::optional<int32_t> Drafter::DrawOne(DraftRequest* request, size_t r, int32_t j) {
  Choice& choice = *request->choice;
  if (places_[r]) {
    const int32_t token = draws_.token(*places_[r]);
    return choice.Suppose(token) ? std::optional(token) : std::nullopt;
  }
  const auto vocab = static_cast<size_t>(loaded_.config().vocab_size);
  const auto logits = std::span(logits_).subspan(r * vocab, vocab);
  const auto position = static_cast<uint32_t>(request->position + 1 + j);
  if (!choice.judged()) return choice.Draft(logits, position);
  std::vector<float>& rows = request->out->distributions;
  rows.resize(static_cast<size_t>(j + 1) * vocab);
  const auto token = choice.DraftApart(logits, position, static_cast<uint32_t>(j), std::span(rows).last(vocab));
  if (!token) rows.resize(static_cast<size_t>(j) * vocab);
  return token;
}

bool Drafter::Draw(std::span<DraftRequest> requests, int32_t j) {
  const auto vocab = static_cast<size_t>(loaded_.config().vocab_size);
  backend::Backend& device = loaded_.backend();
  device.CopyToDevice(row_index_.data(), index_.data(), index_.size() * sizeof(int32_t));
  device.GatherRows({.rows = static_cast<int64_t>(requests.size()),
                     .row_bytes = static_cast<int64_t>(vocab * sizeof(float)),
                     .src = model_->logits(),
                     .index = row_index_.as<int32_t>(),
                     .dst = rows_.data()});
  places_.assign(requests.size(), std::nullopt);
  draws_.Begin(requests.size());
  for (size_t r = 0; r < requests.size(); ++r) {
    if (open_[r] == 0) continue;
    if (requests[r].choice->judged()) {
      draws_.LeaveToHost(static_cast<int32_t>(r), 1);
    } else {
      draws_.Add(requests[r].choice.get(), static_cast<uint32_t>(requests[r].position + 1 + j), static_cast<int32_t>(r), {},
                 std::span(places_).subspan(r, 1));
    }
  }
  draws_.Queue(rows_.as<float>(), &logits_);
  Keep(device.Synchronize());
  if (!status_.ok()) return false;
  bool any = false;
  for (size_t r = 0; r < requests.size(); ++r) {
    if (open_[r] == 0) continue;
    DraftRequest& request = requests[r];
    const std::optional<int32_t> token = DrawOne(&request, r, j);
    // Behind an end token nothing follows. The row that draws it runs without a draft, unless the draft is to be judged:
    // whether it is verified may then not depend on what it is.
    const bool end = token && request.choice->IsEnd(*token);
    open_[r] = 0;
    if (!token || (end && !request.choice->judged())) continue;
    request.out->tokens.push_back(*token);
    previous_[r] = *token;
    open_[r] = !end && j + 1 < request.drafts;
    any = any || open_[r] != 0;
  }
  return any;
}

int32_t Drafter::ListAnchors(std::span<const DraftRequest> requests) {
  anchors_.clear();
  int32_t drafts = 1;
  for (const DraftRequest& request : requests) {
    anchors_.push_back({.request = request.slot,
                        .token = request.newest,
                        .position = static_cast<int32_t>(request.position),
                        .floor = static_cast<int32_t>(request.floor)});
    request.out->Clear();
    request.out->anchor = request.position;
    drafts = std::max(drafts, request.drafts);
  }
  return drafts;
}

void Drafter::Queue(std::vector<DraftRequest> requests) {
  std::sort(requests.begin(), requests.end(), [](const DraftRequest& a, const DraftRequest& b) { return a.slot < b.slot; });
  std::vector<DraftRequest> hosted;
  chained_.clear();
  chain_first_.clear();
  chain_edits_.clear();
  chain_plain_ = true;
  for (DraftRequest& request : requests) {
    (ListInChain(request) ? chained_ : hosted).push_back(std::move(request));
  }
  QueueChain();
  RunHosted(hosted);
}

bool Drafter::ListInChain(const DraftRequest& request) {
  Choice& choice = *request.choice;
  if (!draws_.on() || choice.judged() || !choice.DraftsAhead()) return false;
  const std::optional<DeviceDraw> plan =
      choice.PlanDraw(static_cast<uint32_t>(request.position + 1), loaded_.config().vocab_size);
  if (!plan || chain_edits_.size() + plan->edits.size() > model::deepseek_v41::kChainEditsMax) return false;
  chain_first_.push_back(plan->draw);
  chain_first_.back().first_edit = static_cast<int32_t>(chain_edits_.size());
  chain_first_.back().num_edits = static_cast<int32_t>(plan->edits.size());
  chain_edits_.insert(chain_edits_.end(), plan->edits.begin(), plan->edits.end());
  chain_plain_ = chain_plain_ && plan->plain;
  return true;
}

void Drafter::QueueChain() {
  if (chained_.empty()) return;
  chain_drafts_ = ListAnchors(chained_);
  chain_draws_.clear();
  chain_adjusted_.clear();
  for (int32_t j = 0; j < chain_drafts_; ++j) {
    for (backend::AdjustedDraw draw : chain_first_) {
      draw.draw.position += static_cast<uint32_t>(j);
      chain_plain_ ? chain_draws_.push_back(draw.draw) : chain_adjusted_.push_back(draw);
    }
  }
  model_->RunChain(anchors_, windows_, chain_drafts_, {.plain = chain_draws_, .adjusted = chain_adjusted_, .edits = chain_edits_});
  const size_t n = chained_.size();
  const auto drafts = static_cast<size_t>(chain_drafts_);
  chain_stride_ = static_cast<size_t>(model_->token_stride());
  chain_tokens_.resize((drafts - 1) * chain_stride_ + n);
  chain_confidence_.resize(drafts * n);
  backend::Backend& device = loaded_.backend();
  device.CopyToHost(chain_tokens_.data(), model_->tokens(0), chain_tokens_.size() * sizeof(int32_t));
  device.CopyToHost(chain_confidence_.data(), model_->confidence(), chain_confidence_.size() * sizeof(float));
}

Status Drafter::Collect() {
  if (!chained_.empty()) Keep(loaded_.backend().Synchronize());
  const size_t n = chained_.size(), drafts = static_cast<size_t>(chain_drafts_);
  for (size_t r = 0; r < n && status_.ok(); ++r) {
    const DraftRequest& request = chained_[r];
    for (size_t j = 0; j < static_cast<size_t>(request.drafts); ++j) {
      const int32_t token = chain_tokens_[j * chain_stride_ + r];
      // Behind an end token nothing follows; the row that draws it runs without a draft.
      if (request.choice->IsEnd(token)) break;
      request.out->tokens.push_back(token);
      request.out->confidence.push_back(chain_confidence_[r * drafts + j]);
    }
  }
  chained_.clear();
  return std::exchange(status_, Status());
}

void Drafter::RunHosted(std::span<DraftRequest> requests) {
  if (requests.empty()) return;
  const int32_t drafts = ListAnchors(requests);
  previous_.clear();
  index_.clear();
  for (size_t r = 0; r < requests.size(); ++r) {
    previous_.push_back(requests[r].newest);
    index_.push_back(static_cast<int32_t>(r) * drafts);
  }
  open_.assign(requests.size(), 1);
  model_->RunBlock(anchors_, windows_, drafts);
  for (int32_t j = 0; j < drafts; ++j) {
    model_->Next(previous_);
    if (!Draw(requests, j)) break;
    for (int32_t& index : index_) ++index;
  }
  confidence_.resize(requests.size() * static_cast<size_t>(drafts));
  loaded_.backend().CopyToHost(confidence_.data(), model_->confidence(), confidence_.size() * sizeof(float));
  Keep(loaded_.backend().Synchronize());
  for (size_t r = 0; r < requests.size(); ++r) {
    const auto first = confidence_.begin() + static_cast<std::ptrdiff_t>(r * static_cast<size_t>(drafts));
    Drafts& out = *requests[r].out;
    out.confidence.assign(first, first + static_cast<std::ptrdiff_t>(out.tokens.size()));
    requests[r].choice->DropDrafts();
  }
}

Result<int64_t> Drafter::WarmUpContext(const model::deepseek_v41::DraftTaps& taps, int64_t rows) {
  const int64_t before = model_->recordings();
  std::vector<ContextRow> list;
  for (int32_t row = 0; row < static_cast<int32_t>(std::min<int64_t>(rows, model_->recorded_context_rows_max())); ++row) {
    list.push_back({.tap_row = taps.first + row, .position = 0, .slot = 0});
    for (int i = 0; i < 2; ++i) Store(taps.values, list);
  }
  DI_RETURN_IF_ERROR(loaded_.backend().Synchronize());
  return model_->recordings() - before;
}

Result<int64_t> Drafter::WarmUpBlocks(int32_t slots) {
  const int64_t before = model_->recordings();
  DI_RETURN_IF_ERROR(WarmUpContext({.values = waiting_taps_.as<float>()}, kWaitingMax).status());
  for (const int64_t size : model_->recorded_sizes()) {
    if (size > slots) break;
    anchors_.clear();
    for (int64_t r = 0; r < size; ++r) anchors_.push_back({.request = static_cast<int32_t>(r), .position = 1});
    for (int64_t drafts = 1; drafts <= model_->block_size(); ++drafts) {
      chain_draws_.assign(static_cast<size_t>(size * drafts), {});
      chain_adjusted_.assign(chain_draws_.size(), {});
      for (int i = 0; i < 2; ++i) {
        model_->RunChain(anchors_, windows_, drafts, {.plain = chain_draws_});
        model_->RunChain(anchors_, windows_, drafts, {.adjusted = chain_adjusted_});
      }
    }
    DI_RETURN_IF_ERROR(loaded_.backend().Synchronize());
  }
  return model_->recordings() - before;
}

}  // namespace deepinfer::engine
