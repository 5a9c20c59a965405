// SPDX-License-Identifier: Apache-2.0
// The drafts of a block, each drawn on the device behind the one before it, without a look from the host: the heads of all
// drafts are recorded as one, for some numbers of anchors. Numbers in between are padded in front with copies of the first
// anchor, as the rows of a step are (recorded.cc). Where there is no token to draw, 0 is drafted: wrong, but it has an
// embedding.
#include <algorithm>
#include <numeric>

#include "core/check.h"
#include "model/deepseek_v41/dspark_impl.h"

namespace deepinfer::model::deepseek_v41 {
namespace {

constexpr int64_t kAnchors[] = {1, 2, 3, 4, 8, 16, 32};

}  // namespace

std::vector<int64_t> DraftModel::recorded_sizes() const {
  std::vector<int64_t> sizes;
  if (!impl_->dev.can_record() || !impl_->dev.can_sample()) return sizes;
  for (const int64_t size : kAnchors) {
    if (size <= impl_->options.requests_max) sizes.push_back(size);
  }
  return sizes;
}

int64_t DraftModel::Impl::ChainTablesBytes() const {
  const int64_t rows = options.requests_max * draft.block_size;
  return StepTables::Room(options.requests_max * static_cast<int64_t>(sizeof(int32_t))) +
         StepTables::Room(rows * static_cast<int64_t>(sizeof(backend::AdjustedDraw))) +
         StepTables::Room(static_cast<int64_t>(kChainEditsMax * sizeof(backend::LogitEdit)));
}

Status DraftModel::Impl::AllocateChain() {
  DI_ASSIGN_OR_RETURN(chain_tables, StepTables::Create(dev, ChainTablesBytes()));
  const auto anchors = static_cast<size_t>(options.requests_max);
  DI_ASSIGN_OR_RETURN(tokens, dev.Allocate(anchors * static_cast<size_t>(draft.block_size) * sizeof(int32_t)));
  DI_ASSIGN_OR_RETURN(adjusted_token, dev.Allocate(anchors * sizeof(int32_t)));
  std::vector<int32_t> list(static_cast<size_t>(1 + config.vocab_size));
  std::iota(list.begin() + 1, list.end(), 0);
  DI_ASSIGN_OR_RETURN(token_or_zero, backend::Upload<int32_t>(dev, list));
  scratch_bytes += static_cast<int64_t>(chain_tables.size_bytes() + tokens.size_bytes() + adjusted_token.size_bytes() +
                                        token_or_zero.size_bytes());
  return Status();
}

void DraftModel::Impl::PadDraws(const ChainDraws& draws, int64_t real) {
  padded_draws.clear();
  padded_adjusted.clear();
  for (int64_t j = 0; j < drafts; ++j) {
    for (int64_t r = 0; r < num_anchors; ++r) {
      const auto from = static_cast<size_t>(j * real + std::max<int64_t>(0, r - first_anchor));
      const auto logits_row = static_cast<int32_t>(r * drafts + j);
      if (draws.adjusted.empty()) {
        padded_draws.push_back(draws.plain[from]);
        padded_draws.back().logits_row = logits_row;
      } else {
        padded_adjusted.push_back(draws.adjusted[from]);
        padded_adjusted.back().draw.logits_row = logits_row;
      }
    }
  }
}

void DraftModel::RunChain(std::span<const DraftAnchor> anchors, std::span<const WindowCache> windows, int64_t drafts,
                          const ChainDraws& draws) {
  Impl& m = *impl_;
  const auto real = static_cast<int64_t>(anchors.size());
  DI_CHECK(real > 0 && m.dev.can_sample() && draws.edits.size() <= kChainEditsMax &&
           static_cast<int64_t>(draws.plain.size() + draws.adjusted.size()) == real * drafts);
  const int64_t recorded_size = m.RecordedSize(kAnchors, real, m.options.requests_max);
  const int64_t n = std::max(real, recorded_size);
  m.first_anchor = n - real;
  m.padded_anchors.assign(static_cast<size_t>(n - real), anchors[0]);
  m.padded_anchors.insert(m.padded_anchors.end(), anchors.begin(), anchors.end());
  m.RunStages(m.padded_anchors, windows, drafts);

  m.padded.clear();
  for (const DraftAnchor& anchor : m.padded_anchors) m.padded.push_back(anchor.token);
  m.PadDraws(draws, real);
  const bool plain = draws.adjusted.empty();
  m.chain_tables.Clear();
  const int32_t* first = m.chain_tables.Add(std::span<const int32_t>(m.padded));
  const auto* plain_draws = m.chain_tables.Add(std::span<const backend::SampleDraw>(m.padded_draws));
  const auto* adjusted_draws = m.chain_tables.Add(std::span<const backend::AdjustedDraw>(m.padded_adjusted));
  const auto* edits = m.chain_tables.Add(draws.edits);  // the last ones: their number is free
  m.chain_tables.Upload(m.dev);
  const auto queue = [&] {
    const int64_t vocab = m.config.vocab_size;
    m.HiddenConfidence();
    for (int64_t j = 0; j < drafts; ++j) {
      auto* drawn = m.tokens.as<int32_t>() + j * n;
      m.Heads(j, j == 0 ? first : drawn - n, m.markov.as<float>() + j * n * m.draft.markov_rank);
      if (plain) {
        m.dev.Sample({.rows = n, .vocab = vocab, .logits = m.logits, .draws = plain_draws + j * n, .no_token = 0, .tokens = drawn});
        continue;
      }
      m.dev.SampleAdjusted({.rows = n,
                            .vocab = vocab,
                            .logits = m.logits,
                            .draws = adjusted_draws + j * n,
                            .edits = edits,
                            .masks = nullptr,
                            .mask_words = (vocab + 31) / 32,
                            .tokens = m.adjusted_token.as<int32_t>()});
      m.dev.GatherRows({.rows = n,
                        .row_bytes = sizeof(int32_t),
                        .src = m.token_or_zero.as<int32_t>() + 1,
                        .index = m.adjusted_token.as<int32_t>(),
                        .dst = drawn});
    }
    m.MarkovConfidence(0, drafts);
  };
  if (recorded_size == 0) return queue();
  m.recorded_chains[{n, drafts, plain}].Run(m.dev, queue);
}

const int32_t* DraftModel::tokens(int64_t j) const {
  return impl_->tokens.as<int32_t>() + j * token_stride() + impl_->first_anchor;
}

int64_t DraftModel::token_stride() const { return impl_->num_anchors; }

}  // namespace deepinfer::model::deepseek_v41
