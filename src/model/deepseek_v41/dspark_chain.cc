// SPDX-License-Identifier: Apache-2.0
// The drafts of a block, each drawn on the device behind the one before it, without a look from the host: the heads of all
// drafts are recorded as one, for some numbers of anchors. Numbers in between are padded in front with copies of the first
// anchor, as the rows of a step are (recorded.cc).
#include <algorithm>

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
         StepTables::Room(rows * static_cast<int64_t>(sizeof(backend::SampleDraw)));
}

void DraftModel::RunChain(std::span<const DraftAnchor> anchors, std::span<const WindowCache> windows, int64_t drafts,
                          std::span<const backend::SampleDraw> draws) {
  Impl& m = *impl_;
  DI_CHECK(!anchors.empty() && m.dev.can_sample() && static_cast<int64_t>(draws.size()) == static_cast<int64_t>(anchors.size()) * drafts);
  const auto real = static_cast<int64_t>(anchors.size());
  const int64_t recorded_size = m.RecordedSize(kAnchors, real, m.options.requests_max);
  const int64_t n = std::max(real, recorded_size);
  m.first_anchor = n - real;
  m.padded_anchors.assign(static_cast<size_t>(n - real), anchors[0]);
  m.padded_anchors.insert(m.padded_anchors.end(), anchors.begin(), anchors.end());
  m.RunStages(m.padded_anchors, windows, drafts);

  m.padded.clear();
  for (const DraftAnchor& anchor : m.padded_anchors) m.padded.push_back(anchor.token);
  m.padded_draws.clear();
  for (int64_t j = 0; j < drafts; ++j) {
    for (int64_t r = 0; r < n; ++r) {
      backend::SampleDraw draw = draws[static_cast<size_t>(j * real + std::max<int64_t>(0, r - m.first_anchor))];
      draw.logits_row = static_cast<int32_t>(r * drafts + j);
      m.padded_draws.push_back(draw);
    }
  }
  m.chain_tables.Clear();
  const int32_t* first = m.chain_tables.Add(std::span<const int32_t>(m.padded));
  const auto* device_draws = m.chain_tables.Add(std::span<const backend::SampleDraw>(m.padded_draws));
  m.chain_tables.Upload(m.dev);
  const auto queue = [&] {
    m.HiddenConfidence();
    for (int64_t j = 0; j < drafts; ++j) {
      auto* drawn = m.tokens.as<int32_t>() + j * n;
      m.Heads(j, j == 0 ? first : drawn - n, m.markov.as<float>() + j * n * m.draft.markov_rank);
      m.dev.Sample({.rows = n,
                    .vocab = m.config.vocab_size,
                    .logits = m.logits,
                    .draws = device_draws + j * n,
                    .no_token = 0,  // a wrong draft, but one that has an embedding
                    .tokens = drawn});
    }
    m.MarkovConfidence(0, drafts);
  };
  if (recorded_size == 0) return queue();
  m.recorded_chains[{n, drafts}].Run(m.dev, queue);
}

const int32_t* DraftModel::tokens(int64_t j) const {
  return impl_->tokens.as<int32_t>() + j * impl_->num_anchors + impl_->first_anchor;
}

}  // namespace deepinfer::model::deepseek_v41
