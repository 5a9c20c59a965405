// SPDX-License-Identifier: Apache-2.0
#include "engine/kv_memory.h"

#include <algorithm>
#include <numeric>

namespace deepinfer::engine {
namespace {

using backend::kBlockTokens;
using model::deepseek_v41::kCompressorRing;

}  // namespace

backend::GlobalCache GlobalLayout(const checkpoint::ModelConfig& model, int64_t source) {
  return {.ratio = static_cast<int32_t>(model.compress_ratios[static_cast<size_t>(source)]),
          .dim = static_cast<int32_t>(model.head_dim),
          .index_dim = static_cast<int32_t>(model.index_head_dim)};
}

int64_t BlockBytes(const checkpoint::ModelConfig& model) {
  int64_t bytes = 0;
  for (const int64_t source : model.kv_sources) bytes += GlobalLayout(model, source).block_bytes();
  return bytes;
}

int64_t PageBytes(const checkpoint::ModelConfig& model) {
  return backend::WindowCache{.dim = static_cast<int32_t>(model.head_dim)}.page_bytes();
}

sched::LayerShape ShapeOf(const checkpoint::ModelConfig& model) {
  sched::LayerShape shape{.num_layers = static_cast<int32_t>(model.num_layers), .window = static_cast<int32_t>(model.window)};
  for (const int64_t source : model.kv_sources) shape.kv_sources.push_back(static_cast<int32_t>(source));
  return shape;
}

Status DivideMemory(const checkpoint::ModelConfig& model, const KvBudget& budget, sched::Config* config) {
  if (!(budget.snapshot_share >= 0 && budget.snapshot_share <= 0.9)) {
    return Error(Code::kInvalidArgument, "snapshot_share: expected 0..0.9, found {}", budget.snapshot_share);
  }
  const int64_t late_layers = config->layers.num_layers - config->layers.first_late() + budget.draft_stages;
  const std::array<int64_t, kv::kLayerGroups> layers = {config->layers.first_late(), late_layers};
  const int64_t page_bytes = PageBytes(model);
  const int64_t block_bytes = std::max<int64_t>(BlockBytes(model), 1);  // a model of windows alone has blocks without content
  const int64_t wanted = (config->length_max + kBlockTokens - 1) / kBlockTokens;
  const int64_t windows = config->slots * config->pages_per_request_max() * (layers[kv::kEarly] + layers[kv::kLate]) * page_bytes;
  const auto enough =
      static_cast<int64_t>(static_cast<double>(windows + wanted * block_bytes) / (1 - budget.snapshot_share)) + 1;
  const int64_t memory_bytes = budget.memory_bytes == 0 ? enough : budget.memory_bytes;
  int64_t left = memory_bytes;
  const auto snapshot_bytes = static_cast<int64_t>(budget.snapshot_share * static_cast<double>(memory_bytes));
  // A point takes pages in both groups.
  const int64_t point_bytes = config->pages_per_point() * (layers[kv::kEarly] + layers[kv::kLate]) * page_bytes;
  const int64_t points = std::min<int64_t>(snapshot_bytes / point_bytes, 1 << 16);
  for (const auto group : {kv::kEarly, kv::kLate}) {
    if (layers[group] == 0) continue;
    config->snapshot_pages[group] = static_cast<int32_t>(points * config->pages_per_point());
    config->pages[group] = config->slots * config->pages_per_request_max() + config->snapshot_pages[group];
    left -= config->pages[group] * layers[group] * page_bytes;
  }
  const int64_t blocks = std::min<int64_t>(left / block_bytes, 1 << 24);
  if (left < 0 || blocks < wanted) {
    return Error(Code::kInvalidArgument,
                 "kv_memory: {} bytes are too few for {} running requests and a context of {}; {} bytes would do",
                 budget.memory_bytes, config->slots, config->length_max, enough);
  }
  config->blocks = static_cast<int32_t>(blocks);
  return Status();
}

Status KvMemory::Allocate(int64_t bytes, backend::Buffer* buffer) {
  size_bytes_ += bytes;
  DI_ASSIGN_OR_RETURN(*buffer, backend_->Allocate(static_cast<size_t>(bytes)));
  return Status();
}

Status KvMemory::AllocateWindows(const checkpoint::ModelConfig& model, const sched::Config& config, int64_t draft_stages) {
  first_late_ = static_cast<size_t>(config.layers.first_late());
  page_bytes_ = PageBytes(model);
  const int32_t stride = config.pages_per_request_max();
  for (const auto group : {kv::kEarly, kv::kLate}) {
    DI_RETURN_IF_ERROR(Allocate(int64_t{config.slots} * stride * 4, &pages_[group]));
    DI_RETURN_IF_ERROR(Allocate(int64_t{config.slots} * 4, &first_pages_[group]));
  }
  const auto num_layers = static_cast<size_t>(model.num_layers);
  for (size_t l = 0; l < num_layers + static_cast<size_t>(draft_stages); ++l) {
    const auto group = l < first_late_ ? kv::kEarly : kv::kLate;
    backend::Buffer buffer;
    DI_RETURN_IF_ERROR(Allocate(config.pages[group] * page_bytes_, &buffer));
    (l < num_layers ? caches_.windows : draft_windows_)
        .push_back({.base = buffer.as<std::byte>(),
                    .pages = pages_[group].as<int32_t>(),
                    .first_page = first_pages_[group].as<int32_t>(),
                    .pages_stride = stride,
                    .dim = static_cast<int32_t>(model.head_dim)});
    windows_.push_back(std::move(buffer));
  }
  return Status();
}

Status KvMemory::AllocateGlobals(const checkpoint::ModelConfig& model, const sched::Config& config) {
  const int32_t stride = config.blocks_per_request_max();
  DI_RETURN_IF_ERROR(Allocate(int64_t{config.slots} * stride * 4, &blocks_));
  ring_bytes_ = int64_t{kCompressorRing} * 2 * model.head_dim * 4;
  for (const int64_t source : model.kv_sources) {
    backend::GlobalCache cache = GlobalLayout(model, source);
    backend::Buffer buffer;
    DI_RETURN_IF_ERROR(Allocate(config.blocks * cache.block_bytes(), &buffer));
    cache.base = buffer.as<std::byte>();
    cache.blocks = blocks_.as<int32_t>();
    cache.blocks_stride = stride;
    globals_.push_back(std::move(buffer));
    caches_.globals.push_back(cache);
    caches_.compressor_state.push_back(nullptr);
    if (cache.ratio == 1) continue;
    backend::Buffer ring;
    DI_RETURN_IF_ERROR(Allocate(config.slots * ring_bytes_, &ring));
    caches_.compressor_state.back() = ring.as<float>();
    rings_.push_back(std::move(ring));
  }
  return Status();
}

Result<KvMemory> KvMemory::Create(const checkpoint::ModelConfig& model, const sched::Config& config, int64_t draft_stages,
                                  backend::Backend& backend) {
  KvMemory memory(backend);
  DI_RETURN_IF_ERROR(memory.AllocateWindows(model, config, draft_stages).In("window pages"));
  DI_RETURN_IF_ERROR(memory.AllocateGlobals(model, config).In("blocks"));
  std::vector<int32_t> slots(static_cast<size_t>(config.slots));
  std::iota(slots.begin(), slots.end(), 0);
  DI_ASSIGN_OR_RETURN(memory.ring_slots_, backend::Upload<int32_t>(backend, slots));
  memory.caches_.ring_slots = memory.ring_slots_.as<int32_t>();
  const int32_t zero = 0;
  DI_ASSIGN_OR_RETURN(memory.index_, backend::Upload<int32_t>(backend, std::span(&zero, 1)));
  return Result<KvMemory>(std::move(memory));
}

void KvMemory::SetTables(const Tables& tables) {
  // A long context's tables are megabytes, of which a step changes little.
  constexpr size_t kPiece = 4096;
  const auto put = [&](const backend::Buffer& buffer, const std::vector<int32_t>& values, std::vector<int32_t>* there) {
    DI_CHECK(values.size() * 4 <= buffer.size_bytes());
    const bool all = there->size() != values.size();
    if (all) there->resize(values.size());
    for (size_t begin = 0; begin < values.size(); begin += kPiece) {
      const auto from = values.begin() + static_cast<std::ptrdiff_t>(begin);
      const auto to = values.begin() + static_cast<std::ptrdiff_t>(std::min(begin + kPiece, values.size()));
      const auto old = there->begin() + static_cast<std::ptrdiff_t>(begin);
      if (!all && std::equal(from, to, old)) continue;
      std::copy(from, to, old);
      backend_->CopyToDevice(buffer.as<int32_t>() + begin, &*from, static_cast<size_t>(to - from) * 4);
    }
  };
  put(blocks_, tables.blocks, &on_device_.blocks);
  for (const auto group : {kv::kEarly, kv::kLate}) {
    put(pages_[group], tables.pages[group], &on_device_.pages[group]);
    put(first_pages_[group], tables.first_pages[group], &on_device_.first_pages[group]);
  }
}

void KvMemory::CopyPiece(const backend::Buffer& buffer, int64_t bytes, int32_t from, int32_t to) {
  backend_->GatherRows({.rows = 1,
                        .row_bytes = bytes,
                        .src = buffer.as<std::byte>() + from * bytes,
                        .index = index_.as<int32_t>(),
                        .dst = buffer.as<std::byte>() + to * bytes});
}

void KvMemory::Copy(const sched::Copy& copy) {
  switch (copy.kind) {
    case sched::CopyKind::kBlock:
      for (size_t s = 0; s < globals_.size(); ++s) {
        CopyPiece(globals_[s], caches_.globals[s].block_bytes(), copy.from, copy.to);
      }
      break;
    case sched::CopyKind::kEarlyPage:
      for (size_t l = 0; l < first_late_; ++l) CopyPiece(windows_[l], page_bytes_, copy.from, copy.to);
      break;
    case sched::CopyKind::kLatePage:
      for (size_t l = first_late_; l < windows_.size(); ++l) CopyPiece(windows_[l], page_bytes_, copy.from, copy.to);
      break;
    case sched::CopyKind::kState:
      for (const backend::Buffer& ring : rings_) CopyPiece(ring, ring_bytes_, copy.from, copy.to);
      break;
  }
}

}  // namespace deepinfer::engine
