// SPDX-License-Identifier: Apache-2.0
// Steps that run all their rows in every layer, as decode and verify steps do: their tables go to the device in one piece,
// and on a backend that can record, their ops are queued as one. A recording serves one number of rows; steps of other
// sizes are padded in front with copies of their first row. Such a copy computes and stores what the row does, the same
// bytes, and a row's result does not depend on the others, so padding changes nothing.
#include <algorithm>

#include "core/check.h"
#include "model/deepseek_v41/forward_impl.h"

namespace deepinfer::model::deepseek_v41 {
namespace {

// At most a third more rows than are needed.
constexpr int64_t kSizes[] = {1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64, 80, 96, 128, 160, 192, 224, 256,
                              320, 384, 448, 512};

}  // namespace

std::vector<int64_t> Model::recorded_sizes() const {
  const int64_t most = impl_->RecordedRowsMax();
  std::vector<int64_t> sizes;
  for (const int64_t size : kSizes) {
    if (size < most) sizes.push_back(size);
  }
  if (most > 0) sizes.push_back(most);
  return sizes;
}

int64_t Model::Impl::RecordedRowsMax() const {
  if (!dev.can_record()) return 0;
  return std::min({options.recorded_rows_max, options.rows_max, options.logit_rows_max});
}

int64_t Model::Impl::RecordedRows(const Step& step, const TapFn& tap) const {
  if (tap || step.more_logits || step.embeds != nullptr || step.segments.empty()) return 0;
  int64_t n = 0;
  for (const Segment& segment : step.segments) {
    if (segment.run_from.back() > segment.begin) return 0;
    n += segment.end - segment.begin;
  }
  const int64_t most = RecordedRowsMax();
  if (n == 0 || n > most) return 0;
  const auto* size = std::lower_bound(std::begin(kSizes), std::end(kSizes), n);
  return size == std::end(kSizes) ? 0 : std::min(*size, most);
}

int64_t Model::Impl::TablesBytes() const {
  const int64_t n = RecordedRowsMax();
  const auto sources = static_cast<int64_t>(config.kv_sources.size());
  return (5 + config.num_layers + 4 * sources) * StepTables::Room(n * 4) +
         StepTables::Room(n * std::max<int64_t>(config.engram.ngram_max, 1) * 4) + StepTables::Room(n) +
         StepTables::Room(n * config.hc_mult * kFloat);
}

// One entry for each row, -1 where the row completes no latent: their number must not depend on the positions.
LatentTable Model::Impl::TabledLatents(const Step& step, int32_t ratio) {
  LatentList& l = latents;
  for (auto* list : {&l.last_row, &l.index, &l.requests, &l.positions}) list->clear();
  for (size_t i = 0; i < rows.rows().size(); ++i) {
    const int32_t position = rows.positions()[i];
    const Segment& segment = step.segments[static_cast<size_t>(rows.segments()[i])];
    const bool completes = (position + 1) % ratio == 0 && position >= segment.global_floor;
    l.last_row.push_back(completes ? static_cast<int32_t>(i) : -1);
    l.index.push_back(completes ? position / ratio : -1);
    l.requests.push_back(segment.request);
    l.positions.push_back(position / ratio * ratio);
  }
  return {.count = rows.size(),
          .last_row = AddTable(l.last_row),
          .index = AddTable(l.index),
          .requests = AddTable(l.requests),
          .positions = AddTable(l.positions)};
}

// Floors and ends of every row for one layer.
void Model::Impl::ListFloors(const Step& step, int64_t layer) {
  host_floors.clear();
  host_ends.clear();
  for (const int32_t s : rows.segments()) {
    const Segment& segment = step.segments[static_cast<size_t>(s)];
    host_floors.push_back(segment.window_floor[static_cast<size_t>(layer)]);
    host_ends.push_back(segment.end - 1);
  }
}

void Model::Impl::SetTables(const Step& step, int64_t pad) {
  tables.Clear();
  tabled = {};
  rows.Pad(step, pad);
  const auto n = static_cast<size_t>(rows.size());
  rows.SetDevice(AddTable(rows.positions()), AddTable(rows.requests()));
  // The host lists of the step with the first row in front once more, `pad` times.
  const auto padded = [&]<typename T>(std::span<const T> values, size_t width) {
    std::vector<T> list;
    for (int64_t i = 0; i < pad; ++i) list.insert(list.end(), values.begin(), values.begin() + static_cast<std::ptrdiff_t>(width));
    list.insert(list.end(), values.begin(), values.end());
    return list;
  };
  tabled.ids = AddTable(padded(step.ids, 1));
  if (config.engram.present()) {
    tabled.engram_tokens = AddTable(padded(step.tokens, static_cast<size_t>(config.engram.ngram_max)));
  }
  tabled.dead = AddTable(step.is_image.empty() ? std::vector<uint8_t>(n) : padded(step.is_image, 1));
  std::vector<float> first(n * static_cast<size_t>(config.hc_mult));
  for (size_t r = 0; r < n; ++r) first[r * static_cast<size_t>(config.hc_mult)] = 1;
  tabled.pre = AddTable(first);
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    ListFloors(step, layer);
    tabled.floors.push_back(AddTable(host_floors));
  }
  if (options.draft_block > 0) tabled.ends = AddTable(host_ends);
  for (const int64_t source : config.kv_sources) {
    tabled.latents.push_back(TabledLatents(step, static_cast<int32_t>(config.compress_ratios[static_cast<size_t>(source)])));
  }
  host_final.assign(n - step.logit_rows.size(), 0);
  for (const int32_t row : step.logit_rows) host_final.push_back(row + static_cast<int32_t>(pad));
  tabled.final_index = AddTable(host_final);
  tables.Upload(dev);
}

// The arrays that layers change get copies of their tables.
void Model::Impl::TakeTables() {
  const auto take = [&](const RowArray& to, const void* from) {
    dev.GatherRows({.rows = 1,
                    .row_bytes = rows.size() * to.row_bytes(),
                    .src = from,
                    .index = zero.as<int32_t>(),
                    .dst = to.as<void>()});
  };
  if (config.engram.present()) take(engram_tokens, tabled.engram_tokens);
  take(dead, tabled.dead);
  take(pre, tabled.pre);
}

float* Model::Impl::RunTabled(const Step& step, const Caches& caches, int64_t n) {
  const auto real = static_cast<int64_t>(step.ids.size());
  DI_CHECK(static_cast<int64_t>(step.logit_rows.size()) <= n);
  SetTables(step, n - real);
  Recorded& recorded = recordings[n];
  if (!(recorded.caches == caches)) recorded = {.caches = caches};
  recorded.ops.Run(dev, [&] {
    RunLayers(step, caches, nullptr);
    recorded.taps = draft_taps.as<float>();  // row arrays change places as rows shrink; the ops keep theirs
  });
  if (options.draft_taps) {
    tapped_rows.resize(static_cast<size_t>(real));
    for (size_t i = 0; i < tapped_rows.size(); ++i) tapped_rows[i] = static_cast<int32_t>(i);
    tapped_values = recorded.taps;
    first_tap = n - real;
  }
  first_logit_row = n - static_cast<int64_t>(step.logit_rows.size());
  return logits.as<float>() + first_logit_row * config.vocab_size;
}

}  // namespace deepinfer::model::deepseek_v41
