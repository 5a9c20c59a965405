// SPDX-License-Identifier: Apache-2.0
// Attention over window, chosen latents and sink (spec/model.md 3).
#include <algorithm>

#include "backend/cpu/cache.h"
#include "backend/cpu/ops.h"
#include "core/check.h"

namespace deepinfer::backend::cpu {
namespace {

// The keys of row r in the order of the sum.
struct KeyList {
  int64_t window = 0;
  int64_t total = 0;
  const uint8_t** codes;
  const uint8_t** scales;
};

void ListKeys(const AttentionParams& p, int64_t r, KeyList* list) {
  const int32_t position = p.positions[r], request = p.requests[r];
  int64_t n = 0;
  for (int32_t j = std::max({position - p.window + 1, p.window_floor[r], 0}); j <= position; ++j, ++n) {
    const WindowRow row = FindWindowRow(p.window_cache, request, j);
    list->codes[n] = row.codes;
    list->scales[n] = row.scales;
  }
  list->window = n;
  for (int32_t c = 0; p.has_latents && c < p.selected_count[r]; ++c, ++n) {
    const GlobalRow row = FindGlobalRow(p.latent_cache, request, p.selected[r * p.topk + c]);
    list->codes[n] = row.latent_codes;
    list->scales[n] = row.latent_scales;
  }
  list->total = n;
}

}  // namespace

void Attention(Context& context, const AttentionParams& p) {
  DI_CHECK(p.dim % 32 == 0);
  const int64_t keys_max = p.window + (p.has_latents ? p.topk : 0);
  const int64_t padded = (keys_max + 15) / 16 * 16;
  // Few rows: heads are shared out too, in runs that fill a tile of the kernels.
  const int64_t runs = p.rows >= context.pool.size() ? 1 : std::max<int64_t>(1, p.heads / 4);
  context.For(p.rows * runs, keys_max * p.dim * (p.heads / runs + 1) * 2, [&](int thread, int64_t begin, int64_t end) {
    Arena& arena = context.arena(thread);
    arena.Reset();
    KeyList list;
    list.codes = arena.Take<const uint8_t*>(keys_max);
    list.scales = arena.Take<const uint8_t*>(keys_max);
    const float** q = arena.Take<const float*>(p.heads);
    float** out = arena.Take<float*>(p.heads);
    float** scores = arena.Take<float*>(p.heads);
    for (int64_t h = 0; h < p.heads; ++h) scores[h] = arena.Take<float>(padded);
    float* panels = arena.Take<float>((keys_max + 3) / 4 * 4 * p.dim);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t r = i / runs, run = i % runs;
      const int64_t first = run * p.heads / runs, heads = (run + 1) * p.heads / runs - first;
      ListKeys(p, r, &list);
      for (int64_t h = 0; h < heads; ++h) {
        q[h] = p.q + (r * p.heads + first + h) * p.dim;
        out[h] = p.out + (r * p.heads + first + h) * p.dim;
      }
      context.kernels.attend({.heads = heads, .dim = p.dim, .rope_dim = p.rope_dim, .window_keys = list.window,
                              .keys = list.total, .codes = list.codes, .scales = list.scales, .q = q,
                              .sink = p.sink + first, .table = p.table + r * p.rope_dim, .scale = p.scale,
                              .scores = scores, .panels = panels, .out = out});
    }
  });
}

}  // namespace deepinfer::backend::cpu
