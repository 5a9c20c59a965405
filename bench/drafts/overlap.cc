// SPDX-License-Identifier: Apache-2.0
#include "overlap.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <span>

#include "engine/session.h"
#include "model/deepseek_v41/dspark.h"

namespace {

using namespace deepinfer;
using model::deepseek_v41::DraftModel;
using model::deepseek_v41::DraftWeights;
using model::deepseek_v41::Tap;

constexpr int32_t kPages = 16;

template <typename T>
T Must(Result<T> result) {
  if (!result.ok()) {
    fmt::print(stderr, "drafts_bench: {}\n", result.status().message());
    std::exit(1);
  }
  return *std::move(result);
}

std::vector<double> Softmax(std::span<const float> logits) {
  const double top = *std::max_element(logits.begin(), logits.end());
  std::vector<double> p(logits.size());
  double sum = 0;
  for (size_t v = 0; v < p.size(); ++v) sum += p[v] = std::exp(logits[v] - top);
  for (double& x : p) x /= sum;
  return p;
}

class Comparison {
 public:
  explicit Comparison(const std::string& model) : loaded_(Must(engine::LoadedModel::Load(model, engine::BackendOptions{}))) {
    backend::Backend& device = loaded_->backend();
    weights_ = Must(BindDraftWeights(loaded_->checkpoint(), loaded_->weights(), device, loaded_->activations()));
    draft_ = Must(DraftModel::Create(loaded_->config(), weights_, device, {.context_rows_max = kPages * 128, .requests_max = 1}));
    std::vector<int32_t> table(kPages);
    std::iota(table.begin(), table.end(), 0);
    const int32_t zero = 0;
    table_ = Must(backend::Upload<int32_t>(device, table));
    first_page_ = Must(backend::Upload<int32_t>(device, std::span(&zero, 1)));
    for (int64_t s = 0; s < draft_->num_stages(); ++s) {
      backend::WindowCache cache{.pages = table_.as<int32_t>(),
                                 .first_page = first_page_.as<int32_t>(),
                                 .pages_stride = kPages,
                                 .dim = static_cast<int32_t>(loaded_->config().head_dim)};
      pages_.push_back(Must(device.Allocate(static_cast<size_t>(cache.page_bytes() * kPages))));
      cache.base = pages_.back().as<std::byte>();
      windows_.push_back(cache);
    }
    sums_.resize(static_cast<size_t>(draft_->block_size()));
    walk_sums_.resize(sums_.size());
  }

  void Add(const Text& text) {
    RunTrunk(text.ids);
    const size_t block = sums_.size();
    size_t stored = 0;
    stands_.clear();
    for (size_t n = text.begin; n + block < text.ids.size(); ++n) {
      StoreContext(stored, n);
      stored = n;
      AddBlock(text.ids, n);
    }
    Walk();
  }

  OverlapResult Means() const {
    OverlapResult means{.places = sums_, .tokens = 1 + tokens_ / static_cast<double>(blocks_)};
    for (double& mean : means.places) mean /= static_cast<double>(blocks_);
    means.walk_tokens = 1;
    for (size_t j = 0; j < sums_.size(); ++j) {
      means.walk_places.push_back(walk_sums_[j] / (j == 0 ? steps_ : walk_sums_[j - 1]));
      means.walk_tokens += walk_sums_[j] / steps_;
    }
    return means;
  }

 private:
  void RunTrunk(const std::vector<int32_t>& ids) {
    const auto session = Must(engine::Session::Create(*loaded_, {.context_max = kPages * 128, .chunk = kPages * 128, .draft_taps = true}));
    std::vector<float> taps;
    session->set_tap([&](Tap tap, int64_t, std::span<const int32_t> rows, const void* data, int64_t row_bytes) {
      if (tap != Tap::kDraftTaps) return;
      const auto* values = static_cast<const float*>(data);
      taps.assign(values, values + rows.size() * static_cast<size_t>(row_bytes) / sizeof(float));
    });
    logits_ = Must(session->Append({.ids = ids, .logits = engine::Logits::kAll}));
    taps_ = Must(backend::Upload<float>(loaded_->backend(), taps));
  }

  void StoreContext(size_t begin, size_t end) {
    std::vector<int32_t> positions(end - begin);
    std::iota(positions.begin(), positions.end(), static_cast<int32_t>(begin));
    const std::vector<int32_t> requests(positions.size(), 0);
    draft_->StoreContext({.taps = taps_.as<float>(), .tap_rows = positions, .positions = positions, .requests = requests}, windows_);
  }

  void AddBlock(const std::vector<int32_t>& ids, size_t n) {
    const model::deepseek_v41::DraftAnchor anchor{.token = ids[n], .position = static_cast<int32_t>(n)};
    draft_->RunBlock(std::span(&anchor, 1), windows_, draft_->block_size());
    const auto vocab = static_cast<size_t>(loaded_->config().vocab_size);
    std::vector<float> row(vocab);
    double alive = 1;
    for (size_t j = 0; j < sums_.size(); ++j) {
      draft_->Next(std::span(&ids[n + j], 1));
      loaded_->backend().CopyToHost(row.data(), draft_->logits() + j * vocab, vocab * sizeof(float));
      const std::vector<double> q = Softmax(row), p = Softmax(std::span(logits_).subspan((n + j) * vocab, vocab));
      double overlap = 0;
      for (size_t v = 0; v < vocab; ++v) overlap += std::min(p[v], q[v]);
      sums_[j] += overlap;
      const auto next = static_cast<size_t>(ids[n + j + 1]);
      stands_.push_back(std::min(1.0, q[next] / p[next]));
      tokens_ += alive *= overlap;
    }
    ++blocks_;
  }

  // visits[i]: how likely it is that a step begins at anchor i.
  void Walk() {
    const size_t block = sums_.size(), anchors = stands_.size() / block;
    std::vector<double> visits(anchors + block + 1);
    visits[0] = 1;
    for (size_t i = 0; i < anchors; ++i) {
      double alive = visits[i];
      steps_ += alive;
      for (size_t j = 0; j < block; ++j) {
        const double more = alive * stands_[i * block + j];
        visits[i + 1 + j] += alive - more;
        walk_sums_[j] += alive = more;
      }
      visits[i + 1 + block] += alive;
    }
  }

  std::unique_ptr<engine::LoadedModel> loaded_;
  DraftWeights weights_;
  std::unique_ptr<DraftModel> draft_;
  backend::Buffer table_, first_page_, taps_;
  std::vector<backend::Buffer> pages_;
  std::vector<backend::WindowCache> windows_;
  std::vector<float> logits_;
  std::vector<double> sums_;
  std::vector<double> stands_;     // [anchors of a text, block]
  std::vector<double> walk_sums_;  // by place: steps in which it and all before it stand
  double steps_ = 0;
  double tokens_ = 0;
  int64_t blocks_ = 0;
};

}  // namespace

OverlapResult Overlap(const std::string& model, const std::vector<Text>& texts) {
  Comparison comparison(model);
  for (const Text& text : texts) comparison.Add(text);
  return comparison.Means();
}
