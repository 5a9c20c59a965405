// SPDX-License-Identifier: Apache-2.0
// The cache memory of an engine: how a budget is divided, and the device buffers that blocks and pages lie in.
//
//   for each KV source:  blocks [num_blocks]              GlobalCache::block_bytes() each (backend/api/types.h)
//   for each layer:      pages [pages of its group]       WindowCache::page_bytes() each; draft stages are late layers
//   for each compressor with a gate: rings [slots]        kCompressorRing * 2 * head_dim floats each
//
// Blocks and pages are laid out to the byte in backend/api/types.h. A ring is [kCompressorRing][2][head_dim] floats: row
// p mod kCompressorRing has the values and the gates of position p of a group that is still open. Each buffer is one
// allocation without gaps, so block b of a source begins at b * block_bytes(), page g of a layer at g * page_bytes().
// A block or page id of the scheduler names the same index in every buffer of its kind. Owned by one executor.
#pragma once

#include <vector>

#include "backend/api/backend.h"
#include "checkpoint/config.h"
#include "model/deepseek_v41/step.h"
#include "sched/config.h"
#include "sched/plan.h"

namespace deepinfer::engine {

struct KvBudget {
  int64_t memory_bytes = int64_t{256} << 20;  // 0: just enough
  double snapshot_share = 0.2;  // of the memory, for window pages kept at block ends
  int64_t draft_stages = 0;     // whose windows lie in the late pages too
};

// Fills blocks, pages, snapshot_pages and length_max of `config`, whose slots and row limits are set. The windows of all
// slots come first, then the snapshots' share, the rest is blocks. kInvalidArgument where too little is left for one
// request of the longest length, with what would be enough.
Status DivideMemory(const checkpoint::ModelConfig& model, const KvBudget& budget, sched::Config* config);

// Layers of the model as the scheduler wants them.
sched::LayerShape ShapeOf(const checkpoint::ModelConfig& model);

// The block layout of a KV source (no memory, no tables), and the bytes of a block over all sources.
backend::GlobalCache GlobalLayout(const checkpoint::ModelConfig& model, int64_t source);
int64_t BlockBytes(const checkpoint::ModelConfig& model);
// A window page of one layer.
int64_t PageBytes(const checkpoint::ModelConfig& model);

class KvMemory {
 public:
  static Result<KvMemory> Create(const checkpoint::ModelConfig& model, const sched::Config& config, int64_t draft_stages,
                                 backend::Backend& backend);

  // Puts the tables of a step on the device. Sizes: blocks [slots * blocks_stride], pages and first of each group
  // [slots * pages_stride] and [slots].
  struct Tables {
    std::vector<int32_t> blocks;
    std::array<std::vector<int32_t>, kv::kLayerGroups> pages, first_pages;
  };
  void SetTables(const Tables& tables);
  // Copies a whole block or page. kState: the compressor rings of a slot.
  void Copy(const sched::Copy& copy);

  const model::deepseek_v41::Caches& caches() const { return caches_; }
  std::span<const backend::WindowCache> draft_windows() const { return draft_windows_; }
  int64_t size_bytes() const { return size_bytes_; }

 private:
  explicit KvMemory(backend::Backend& backend) : backend_(&backend) {}
  Status Allocate(int64_t bytes, backend::Buffer* buffer);
  Status AllocateWindows(const checkpoint::ModelConfig& model, const sched::Config& config, int64_t draft_stages);
  Status AllocateGlobals(const checkpoint::ModelConfig& model, const sched::Config& config);
  // Copies piece `from` of `buffer` over piece `to`, pieces of `bytes`.
  void CopyPiece(const backend::Buffer& buffer, int64_t bytes, int32_t from, int32_t to);

  backend::Backend* backend_;
  std::vector<backend::Buffer> windows_, globals_, rings_;  // windows: of the layers, then of the draft stages
  std::array<backend::Buffer, kv::kLayerGroups> pages_, first_pages_;
  backend::Buffer blocks_, ring_slots_, index_;
  Tables on_device_;  // as the last SetTables left them
  model::deepseek_v41::Caches caches_;
  std::vector<backend::WindowCache> draft_windows_;
  size_t first_late_ = 0;
  int64_t page_bytes_ = 0;
  int64_t ring_bytes_ = 0;
  int64_t size_bytes_ = 0;
};

}  // namespace deepinfer::engine
