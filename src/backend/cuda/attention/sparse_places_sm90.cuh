// SPDX-License-Identifier: Apache-2.0
// Finding the keys of an item: two items ahead the row's numbers and its selection are copied to shared memory, one item
// ahead the page and block tables are read, a step after each fill of a buffer. So no producer waits for a chain of loads.
#pragma once

#include "backend/cuda/attention/sparse_shared_sm90.cuh"

namespace deepinfer::backend::cuda::sparse {

// All producers start the copy; WaitForCopies and a barrier end it.
__device__ inline void CopySelection(const SparseParams& p, int item, Places& places) {
  if (item >= p.num_items) return;
  const int t = Producer();
  const int64_t row = p.RowOf(item);
  if (t == 0) ptx::CopyWord(&places.position, p.op.positions + row);
  if (t == 1) ptx::CopyWord(&places.floor, p.op.window_floor + row);
  if (t == 2) ptx::CopyWord(&places.request, p.op.requests + row);
  if (!p.op.has_latents) return;
  if (t == 3) ptx::CopyWord(&places.count, p.op.selected_count + row);
  for (int at = t; at < p.op.topk; at += kProducers) ptx::CopyWord(&places.latents[at], p.op.selected + row * p.op.topk + at);
}

__device__ inline Keys KeysOf(const SparseParams& p, const Places& places) {
  const int first = max(max(places.position - p.op.window + 1, places.floor), 0);
  const int window = max(places.position - first + 1, 0);
  return {first, window, window + (p.op.has_latents ? places.count : 0)};
}

// The table look-ups of one item, in steps that each store what the step before has loaded.
class LookUp {
 public:
  // Without an item there is nothing to do.
  __device__ LookUp(Places& places, bool has_item) : places_(&places), step_(has_item ? 0 : kSteps) {}

  __device__ bool Done() const { return step_ == kSteps; }

  __device__ void Step(const SparseParams& p) {
    const int t = Producer();
    if (step_ == 0) {
      loaded_ = p.op.window_cache.first_page[places_->request];
    } else if (step_ == 1) {
      const Keys keys = KeysOf(p, *places_);
      const int position = keys.first + t;
      loaded_ = t < keys.window ? p.op.window_cache.pages[int64_t{places_->request} * p.op.window_cache.pages_stride +
                                                       position / kBlockTokens - loaded_]
                                : -1;
    } else {
      const int n = p.latents_per_block, count = p.op.has_latents ? places_->count : 0;
      if (step_ == 2) {
        const int position = KeysOf(p, *places_).first + t;
        if (t == 0) StoreTiles(p);
        places_->window[t] = loaded_ < 0 ? -1 : loaded_ * kBlockTokens + position % kBlockTokens;
      } else {
        const int before = (step_ - 3) * kProducers + t;
        places_->latents[before] = loaded_ < 0 ? -1 : loaded_ * kBlockTokens + places_->latents[before] % n;
      }
      const int at = (step_ - 2) * kProducers + t;
      if (step_ + 1 < kSteps) {
        const int32_t* blocks = p.op.latent_cache.blocks + int64_t{places_->request} * p.op.latent_cache.blocks_stride;
        loaded_ = at < count ? blocks[places_->latents[at] / n] : -1;
      }
    }
    ++step_;
  }

 private:
  __device__ void StoreTiles(const SparseParams& p) const {
    const Keys keys = KeysOf(p, *places_);
    places_->window_tiles = Tiles(keys.window);
    places_->tiles = places_->window_tiles + Tiles(keys.count - keys.window);
  }

  static constexpr int kSteps = 3 + kTopkMax / kProducers;

  Places* places_;
  int step_;
  int loaded_ = -1;
};

}  // namespace deepinfer::backend::cuda::sparse
