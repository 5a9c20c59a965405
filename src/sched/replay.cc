// SPDX-License-Identifier: Apache-2.0
#include "sched/replay.h"

#include <algorithm>

#include "core/check.h"

namespace deepinfer::sched {
namespace {

using kv::kEarly;
using kv::kLate;

bool CutsLateLayers(Replay setting) { return setting == Replay::kDecoder || setting == Replay::kBounded; }

// r[l] of the late layers, from the top down. Returns the stream start that the early layers have to deliver.
int64_t LateStarts(const LayerShape& shape, const ReplayInput& in, std::span<int32_t> r, ReplayStarts* starts) {
  const auto num_layers = static_cast<size_t>(shape.num_layers);
  const auto first_late = static_cast<size_t>(shape.first_late());
  const bool cut = CutsLateLayers(in.setting);
  const int64_t reach = shape.window - 1;
  starts->floor[kLate] = cut ? std::max<int64_t>(0, in.prompt_length - shape.window) : 0;
  r[num_layers] = static_cast<int32_t>(in.length - 1);
  int64_t above = in.length - 1;
  if (!cut && in.keep_at > 0) above = std::min(above, in.keep_at);
  for (size_t l = num_layers; l-- > first_late;) {
    above = std::max(starts->floor[kLate], above - reach);
    r[l] = static_cast<int32_t>(above);
  }
  if (in.late_snapshot && !cut && first_late < num_layers && r[first_late] < in.hit) {
    starts->uses_snapshot[kLate] = true;
    for (size_t l = first_late; l < num_layers; ++l) r[l] = std::max(r[l], static_cast<int32_t>(in.hit));
    above = in.hit;
  }
  return above;
}

void EarlyStarts(const LayerShape& shape, const ReplayInput& in, int64_t above, std::span<int32_t> r,
                 ReplayStarts* starts) {
  const auto first_late = static_cast<size_t>(shape.first_late());
  if (in.setting == Replay::kBounded) {
    starts->floor[kEarly] = std::max<int64_t>(0, in.hit - shape.window);
    std::fill_n(r.begin(), first_late, static_cast<int32_t>(starts->floor[kEarly]));
    return;
  }
  if (in.early_snapshot && above >= in.hit) {
    starts->uses_snapshot[kEarly] = first_late > 0;
    std::fill_n(r.begin(), first_late, static_cast<int32_t>(in.hit));
    return;
  }
  auto source = shape.kv_sources.rbegin();
  for (size_t l = first_late; l-- > 0;) {
    int64_t start = above - (shape.window - 1);
    if (source != shape.kv_sources.rend() && static_cast<size_t>(*source) == l) {
      start = std::min(start, in.hit);
      ++source;
    }
    above = std::max<int64_t>(0, start);
    r[l] = static_cast<int32_t>(above);
  }
}

}  // namespace

ReplayStarts ComputeReplay(const LayerShape& shape, const ReplayInput& in, std::span<int32_t> r) {
  const auto num_layers = static_cast<size_t>(shape.num_layers);
  const auto first_late = static_cast<size_t>(shape.first_late());
  DI_CHECK(r.size() == num_layers + 1 && first_late <= num_layers && shape.num_layers > 0 && shape.window > 0);
  DI_CHECK(in.length <= INT32_MAX);
  DI_CHECK(in.hit >= 0 && in.hit < in.length && in.prompt_length > 0 && in.prompt_length <= in.length);
  ReplayStarts starts;
  if (in.setting == Replay::kNone) {
    DI_CHECK(in.hit == 0);
    std::fill(r.begin(), r.end(), 0);
    starts.token_layers = in.length * shape.num_layers;
    return starts;
  }
  EarlyStarts(shape, in, LateStarts(shape, in, r, &starts), r, &starts);
  // Draft stages sit on top of the last layers, so without late layers their windows begin where layer L-1 does.
  const int64_t late_from = r[num_layers - 1];
  const int64_t before_hit = std::max<int64_t>(0, in.hit - (shape.window - 1));
  if (first_late == num_layers && in.late_snapshot && late_from == in.hit) starts.uses_snapshot[kLate] = true;
  const bool late_joins = starts.uses_snapshot[kLate] && late_from == in.hit;
  starts.windows_from[kLate] = late_joins ? before_hit : late_from;
  if (first_late > 0) starts.windows_from[kEarly] = starts.uses_snapshot[kEarly] ? before_hit : r[first_late - 1];
  starts.first_row = r[0];
  for (size_t l = 0; l < num_layers; ++l) starts.token_layers += in.length - r[l + 1];
  return starts;
}

bool HitAllowed(const LayerShape& shape, Replay setting, int64_t prompt_length, int64_t hit) {
  if (hit == 0) return true;
  if (setting == Replay::kNone) return false;
  if (setting != Replay::kDecoder) return true;
  return hit <= prompt_length - shape.window || hit >= prompt_length;
}

}  // namespace deepinfer::sched
