// SPDX-License-Identifier: Apache-2.0
// The indexer's selection (spec/model.md 4) and attention over window, chosen latents and sink (spec/model.md 3).
#include <algorithm>
#include <cmath>
#include <numeric>

#include "backend/reference/decode.h"
#include "backend/reference/ops.h"
#include "core/check.h"

namespace deepinfer::backend::reference {
namespace {

// The `count` best of `items` by score, ties to the lower item, ascending.
std::vector<int32_t> Best(std::vector<int32_t> items, const Row& score, size_t count) {
  std::stable_sort(items.begin(), items.end(), [&](int32_t a, int32_t b) {
    return score[static_cast<size_t>(a)] > score[static_cast<size_t>(b)];
  });
  items.resize(std::min(items.size(), count));
  std::sort(items.begin(), items.end());
  return items;
}

// Max-pooled block scores; the block of the newest visible latent always counts among the best.
std::vector<int32_t> BestBlocks(const Row& score, int64_t block_size, int64_t blocks_max) {
  const int64_t visible = static_cast<int64_t>(score.size());
  const int64_t blocks = (visible + block_size - 1) / block_size;
  Row pooled(static_cast<size_t>(blocks), -INFINITY);
  for (int64_t j = 0; j < visible; ++j) {
    double& best = pooled[static_cast<size_t>(j / block_size)];
    best = std::max(best, score[static_cast<size_t>(j)]);
  }
  if (blocks > 0) pooled.back() = INFINITY;
  std::vector<int32_t> all(static_cast<size_t>(blocks));
  std::iota(all.begin(), all.end(), 0);
  return Best(std::move(all), pooled, static_cast<size_t>(blocks_max));
}

}  // namespace

void IndexSelect(const IndexSelectParams& p) {
  const int64_t dim = p.cache.index_dim;
  Row key(static_cast<size_t>(dim));
  for (int64_t r = 0; r < p.rows; ++r) {
    const int64_t visible = (int64_t{p.positions[r]} + 1) / p.cache.ratio;
    Row score(static_cast<size_t>(visible));
    for (int64_t j = 0; j < visible; ++j) {
      DecodeIndexKey(p.cache, p.requests[r], j, key.data());
      double sum = 0;
      for (int64_t h = 0; h < p.heads; ++h) {
        const float* q = p.q + (r * p.heads + h) * dim;
        double dot = 0;
        for (int64_t i = 0; i < dim; ++i) dot += q[i] * key[static_cast<size_t>(i)];
        sum += double{p.weights[r * p.heads + h]} * p.weight_scale * std::max(dot, 0.0);
      }
      score[static_cast<size_t>(j)] = sum * p.score_scale;
    }
    std::vector<int32_t> items;
    if (p.candidates == Candidates::kRestrict) {
      for (int32_t b = 0; b < p.block_count[r]; ++b) {
        const int64_t begin = p.blocks[r * p.blocks_max + b] * p.block_size;
        for (int64_t j = begin; j < std::min(begin + p.block_size, visible); ++j) items.push_back(static_cast<int32_t>(j));
      }
    } else {
      items.resize(static_cast<size_t>(visible));
      std::iota(items.begin(), items.end(), 0);
    }
    if (p.candidates == Candidates::kPublish) {
      const std::vector<int32_t> blocks = BestBlocks(score, p.block_size, p.blocks_max);
      std::copy(blocks.begin(), blocks.end(), p.blocks + r * p.blocks_max);
      p.block_count[r] = static_cast<int32_t>(blocks.size());
    }
    const std::vector<int32_t> best = Best(std::move(items), score, static_cast<size_t>(p.topk));
    std::fill_n(p.selected + r * p.topk, p.topk, -1);
    std::copy(best.begin(), best.end(), p.selected + r * p.topk);
    p.selected_count[r] = static_cast<int32_t>(best.size());
  }
}

void Attention(const AttentionParams& p) {
  for (int64_t r = 0; r < p.rows; ++r) {
    const int32_t position = p.positions[r], request = p.requests[r];
    const int32_t first = std::max({position - p.window + 1, p.window_floor[r], 0});
    std::vector<Row> keys;
    for (int32_t j = first; j <= position; ++j) {
      DecodeWindowRow(p.window_cache, request, j, keys.emplace_back(static_cast<size_t>(p.dim)).data());
    }
    for (int32_t c = 0; p.has_latents && c < p.selected_count[r]; ++c) {
      DecodeLatent(p.latent_cache, request, p.selected[r * p.topk + c],
                   keys.emplace_back(static_cast<size_t>(p.dim)).data());
    }
    for (int64_t h = 0; h < p.heads; ++h) {
      const float* q = p.q + (r * p.heads + h) * p.dim;
      Row score(keys.size());
      double top = p.sink[h];
      for (size_t j = 0; j < keys.size(); ++j) {
        double dot = 0;
        for (int64_t i = 0; i < p.dim; ++i) dot += q[i] * keys[j][static_cast<size_t>(i)];
        score[j] = dot * p.scale;
        top = std::max(top, score[j]);
      }
      Row out(static_cast<size_t>(p.dim));
      double sum = 0;
      for (size_t j = 0; j < keys.size(); ++j) {
        const double weight = std::exp(score[j] - top);
        sum += weight;
        for (int64_t i = 0; i < p.dim; ++i) out[static_cast<size_t>(i)] += weight * keys[j][static_cast<size_t>(i)];
      }
      sum += std::exp(p.sink[h] - top);
      for (double& value : out) value /= sum;
      Rotate(out.data(), p.dim, p.rope_dim, p.table + r * p.rope_dim, /*inverse=*/true);
      std::copy(out.begin(), out.end(), p.out + (r * p.heads + h) * p.dim);
    }
  }
}

}  // namespace deepinfer::backend::reference
