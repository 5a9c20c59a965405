// SPDX-License-Identifier: Apache-2.0
#include "spec/row_choice.h"

#include <algorithm>
#include <array>
#include <bit>

#include "core/check.h"

namespace deepinfer::spec {
namespace {

constexpr uint32_t kOne = std::bit_cast<uint32_t>(1.0f);  // 30 bits

// The bits of floats that are not negative ascend with them.
uint32_t KeyOf(float survival) { return kOne - std::bit_cast<uint32_t>(survival); }
float SurvivalOf(uint32_t key) { return std::bit_cast<float>(kOne - key); }

}  // namespace

RowChooser::RowChooser(int32_t requests_max, int32_t drafts_max)
    : items_max_(static_cast<size_t>(requests_max) * static_cast<size_t>(drafts_max)) {
  DI_CHECK(requests_max > 0 && drafts_max > 0);
  items_.reserve(items_max_);
  spare_.resize(items_max_);
}

// Earlier drafts stand first, so that the stable sort keeps them first among equals.
void RowChooser::List(const RowChoiceInput& input) {
  items_.clear();
  for (int32_t j = 0; j < input.drafts; ++j) {
    for (size_t r = 0; r < input.limits.size(); ++r) {
      const float survival = input.survival[r * static_cast<size_t>(input.drafts) + static_cast<size_t>(j)];
      DI_CHECK(survival >= 0 && survival <= 1);
      if (j < input.limits[r]) items_.push_back({KeyOf(survival + 0.0f), static_cast<int32_t>(r)});  // + 0: no -0
    }
  }
}

// By digits from the lowest up: a comparison sort of a full batch would take the time that the whole choice may.
void RowChooser::Sort() {
  constexpr size_t kFew = 40;  // for which insertion is sooner done than counting
  if (items_.size() <= kFew) {
    for (size_t i = 1; i < items_.size(); ++i) {
      const Item item = items_[i];
      size_t at = i;
      for (; at > 0 && items_[at - 1].key > item.key; --at) items_[at] = items_[at - 1];
      items_[at] = item;
    }
    return;
  }
  constexpr int kDigitBits = 10, kKeyBits = 30;
  spare_.resize(items_.size());
  for (int shift = 0; shift < kKeyBits; shift += kDigitBits) {
    std::array<uint32_t, (1 << kDigitBits) + 1> first = {};
    const auto digit = [&](const Item& item) { return item.key >> shift & ((1 << kDigitBits) - 1); };
    for (const Item& item : items_) ++first[digit(item) + 1];
    for (size_t d = 1; d < first.size(); ++d) first[d] += first[d - 1];
    for (const Item& item : items_) spare_[first[digit(item)]++] = item;
    std::swap(items_, spare_);
  }
}

RowChoice RowChooser::Choose(const RowChoiceInput& input, std::span<int32_t> lengths) {
  const size_t requests = input.limits.size();
  DI_CHECK(requests * static_cast<size_t>(input.drafts) <= items_max_ && lengths.size() == requests &&
           input.survival.size() == requests * static_cast<size_t>(input.drafts) && !input.cost.empty());
  List(input);
  Sort();
  double tokens = input.sure_tokens;
  RowChoice best{.rows = 0, .tokens = tokens, .per_second = tokens / input.cost[0]};
  const size_t rows_max = std::min(items_.size(), input.cost.size() - 1);
  for (size_t n = 1; n <= rows_max; ++n) {
    tokens += SurvivalOf(items_[n - 1].key);
    const double per_second = tokens / input.cost[n];
    if (per_second > best.per_second) {
      best = {.rows = static_cast<int32_t>(n), .tokens = tokens, .per_second = per_second};
    } else if (input.stop == StopRule::kFirstLoss) {
      break;
    }
  }
  std::fill(lengths.begin(), lengths.end(), 0);
  for (int32_t n = 0; n < best.rows; ++n) ++lengths[static_cast<size_t>(items_[static_cast<size_t>(n)].request)];
  return best;
}

}  // namespace deepinfer::spec
