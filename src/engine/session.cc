// SPDX-License-Identifier: Apache-2.0
#include "engine/session.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/check.h"
#include "engine/kv_memory.h"

namespace deepinfer::engine {
namespace {

using backend::Buffer;
using backend::kBlockTokens;
using model::deepseek_v41::Caches;
using model::deepseek_v41::kCompressorRing;
using model::deepseek_v41::Segment;
using model::deepseek_v41::Step;

}  // namespace

// Device memory of one sequence: for every layer a few window pages, used in turn; for every KV source one block after
// the other up to the context's end; for every compressor with a gate one ring.
class Session::CacheMemory {
 public:
  static Result<std::unique_ptr<CacheMemory>> Create(const checkpoint::ModelConfig& config, const SessionOptions& options,
                                                     backend::Backend& backend);

  // Views for a step over positions [begin, end).
  const Caches& Prepare(int32_t begin, int32_t end);
  // Overwrites all window rows and rings with NaN, so that reading one that was not computed again shows.
  void ForgetWindows();
  int64_t size_bytes() const { return size_bytes_; }

 private:
  explicit CacheMemory(backend::Backend& backend) : backend_(backend) {}
  Status AllocateWindows(const checkpoint::ModelConfig& config, const SessionOptions& options);
  Status AllocateGlobals(const checkpoint::ModelConfig& config, const SessionOptions& options);
  Result<Buffer> Allocate(int64_t bytes);

  backend::Backend& backend_;
  std::vector<Buffer> buffers_;
  Buffer window_table_, first_page_, block_table_, ring_slots_;
  Caches caches_;
  int32_t pages_ = 0;  // window pages of a layer
  int32_t window_ = 0;
  int64_t size_bytes_ = 0;
};

Result<Buffer> Session::CacheMemory::Allocate(int64_t bytes) {
  size_bytes_ += bytes;
  return backend_.Allocate(static_cast<size_t>(bytes));
}

Status Session::CacheMemory::AllocateWindows(const checkpoint::ModelConfig& config, const SessionOptions& options) {
  window_ = static_cast<int32_t>(config.window);
  // A step touches window + chunk positions, which may begin in the middle of a page.
  pages_ = static_cast<int32_t>((config.window + options.chunk) / kBlockTokens + 2);
  DI_ASSIGN_OR_RETURN(window_table_, Allocate(int64_t{pages_} * 4));
  DI_ASSIGN_OR_RETURN(first_page_, Allocate(4));
  for (int64_t l = 0; l < config.num_layers; ++l) {
    backend::WindowCache cache{.pages = window_table_.as<int32_t>(),
                               .first_page = first_page_.as<int32_t>(),
                               .pages_stride = pages_,
                               .dim = static_cast<int32_t>(config.head_dim)};
    DI_ASSIGN_OR_RETURN(Buffer buffer, Allocate(pages_ * cache.page_bytes()));
    cache.base = buffer.as<std::byte>();
    buffers_.push_back(std::move(buffer));
    caches_.windows.push_back(cache);
  }
  return Status();
}

Status Session::CacheMemory::AllocateGlobals(const checkpoint::ModelConfig& config, const SessionOptions& options) {
  const int64_t blocks = (options.context_max + kBlockTokens - 1) / kBlockTokens;
  std::vector<int32_t> table(static_cast<size_t>(blocks));
  for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<int32_t>(i);
  DI_ASSIGN_OR_RETURN(block_table_, backend::Upload<int32_t>(backend_, table));
  const int32_t slot = 0;
  DI_ASSIGN_OR_RETURN(ring_slots_, backend::Upload<int32_t>(backend_, std::span(&slot, 1)));
  caches_.ring_slots = ring_slots_.as<int32_t>();
  for (const int64_t source : config.kv_sources) {
    backend::GlobalCache cache = GlobalLayout(config, source);
    cache.blocks = block_table_.as<int32_t>();
    cache.blocks_stride = static_cast<int32_t>(blocks);
    DI_ASSIGN_OR_RETURN(Buffer buffer, Allocate(blocks * cache.block_bytes()));
    cache.base = buffer.as<std::byte>();
    buffers_.push_back(std::move(buffer));
    caches_.globals.push_back(cache);
    caches_.compressor_state.push_back(nullptr);
    if (cache.ratio > 1) {
      DI_ASSIGN_OR_RETURN(Buffer ring, Allocate(int64_t{kCompressorRing} * 2 * config.head_dim * 4));
      caches_.compressor_state.back() = ring.as<float>();
      buffers_.push_back(std::move(ring));
    }
  }
  return Status();
}

Result<std::unique_ptr<Session::CacheMemory>> Session::CacheMemory::Create(const checkpoint::ModelConfig& config,
                                                                           const SessionOptions& options,
                                                                           backend::Backend& backend) {
  std::unique_ptr<CacheMemory> memory(new CacheMemory(backend));
  DI_RETURN_IF_ERROR(memory->AllocateWindows(config, options));
  DI_RETURN_IF_ERROR(memory->AllocateGlobals(config, options));
  return memory;
}

const Caches& Session::CacheMemory::Prepare(int32_t begin, int32_t end) {
  const int32_t first = std::max(begin - window_ + 1, 0) / kBlockTokens;
  DI_CHECK((end - 1) / kBlockTokens - first < pages_);
  std::vector<int32_t> table(static_cast<size_t>(pages_));
  for (int32_t i = 0; i < pages_; ++i) table[static_cast<size_t>(i)] = (first + i) % pages_;
  backend_.CopyToDevice(window_table_.data(), table.data(), table.size() * 4);
  backend_.CopyToDevice(first_page_.data(), &first, 4);
  return caches_;
}

void Session::CacheMemory::ForgetWindows() {
  for (const backend::WindowCache& cache : caches_.windows) {
    const std::vector<uint8_t> nan(static_cast<size_t>(pages_ * cache.page_bytes()), 0xFF);
    backend_.CopyToDevice(cache.base, nan.data(), nan.size());
  }
  for (size_t s = 0; s < caches_.globals.size(); ++s) {
    if (caches_.compressor_state[s] == nullptr) continue;
    const std::vector<float> nan(static_cast<size_t>(kCompressorRing * 2 * caches_.globals[s].dim), NAN);
    backend_.CopyToDevice(caches_.compressor_state[s], nan.data(), nan.size() * sizeof(float));
  }
}

Replay ExactReplay(const checkpoint::ModelConfig& config, int32_t begin, int32_t logits_from) {
  const auto layers = static_cast<size_t>(config.num_layers);
  Replay replay{.run_from = std::vector<int32_t>(layers + 1), .window_floor = std::vector<int32_t>(layers)};
  replay.run_from[layers] = std::max(begin, logits_from);
  for (size_t l = layers; l-- > 0;) {
    int32_t from = replay.run_from[l + 1] - static_cast<int32_t>(config.window - 1);
    if (config.IsKvSource(static_cast<int64_t>(l))) from = std::min(from, begin);
    replay.run_from[l] = std::max(from, begin);
  }
  return replay;
}

Session::Session(const LoadedModel& loaded, const SessionOptions& options) : loaded_(loaded), options_(options) {}
Session::~Session() = default;

Result<std::unique_ptr<Session>> Session::Create(const LoadedModel& loaded, const SessionOptions& options) {
  SessionOptions effective = options;
  const int64_t made_for = loaded.config().max_positions;
  if (effective.context_max == 0) effective.context_max = made_for;
  if (effective.context_max < 1 || effective.context_max > made_for) {
    return Error(Code::kInvalidArgument, "context of {} positions: expected 1..{} (max_position_embeddings of the model)",
                 effective.context_max, made_for);
  }
  DI_RETURN_IF_ERROR(loaded.CheckActivations(effective.activations));
  if (effective.chunk < 1) return Error(Code::kInvalidArgument, "chunk of {} tokens: expected at least 1", effective.chunk);
  effective.chunk = std::min(effective.chunk, effective.context_max);
  std::unique_ptr<Session> session(new Session(loaded, effective));
  DI_ASSIGN_OR_RETURN(session->model_,
                      model::deepseek_v41::Model::Create(loaded.config(), loaded.weights(), loaded.backend(),
                                                         {.rows_max = effective.chunk,
                                                          .logit_rows_max = effective.chunk,
                                                          .activations = effective.activations,
                                                          .draft_taps = effective.draft_taps}));
  Result<std::unique_ptr<CacheMemory>> caches = CacheMemory::Create(loaded.config(), effective, loaded.backend());
  if (!caches.ok()) return caches.status().In(fmt::format("a context of {} positions", effective.context_max));
  session->caches_ = *std::move(caches);
  return session;
}

Status Session::Check(const AppendRequest& request) const {
  if (request.ids.empty() && computed_ == static_cast<int32_t>(tokens_.size())) {
    return Error(Code::kInvalidArgument, "no tokens to run");
  }
  for (size_t i = 0; i < request.ids.size(); ++i) {
    if (request.ids[i] < 0 || request.ids[i] >= loaded_.config().vocab_size) {
      return Error(Code::kInvalidArgument, "token {} is {}: the vocabulary has ids 0..{}", i, request.ids[i],
                   loaded_.config().vocab_size - 1);
    }
  }
  if (tokens_.size() + request.ids.size() > static_cast<size_t>(options_.context_max)) {
    return Error(Code::kResourceExhausted, "{} tokens and {} more do not fit into the context of {}", tokens_.size(),
                 request.ids.size(), options_.context_max);
  }
  DI_CHECK(request.is_image.empty() || request.is_image.size() == request.ids.size());
  DI_CHECK(request.embeds.empty() ||
           request.embeds.size() == request.ids.size() * static_cast<size_t>(loaded_.config().hidden_size));
  return Status();
}

Result<std::vector<float>> Session::Append(const AppendRequest& request) {
  DI_RETURN_IF_ERROR(Check(request));
  const auto old_size = static_cast<int32_t>(tokens_.size());
  tokens_.insert(tokens_.end(), request.ids.begin(), request.ids.end());
  if (request.is_image.empty()) {
    is_image_.resize(tokens_.size());
  } else {
    is_image_.insert(is_image_.end(), request.is_image.begin(), request.is_image.end());
  }
  embeds_.assign(request.embeds.begin(), request.embeds.end());
  embeds_begin_ = old_size;
  const auto size = static_cast<int32_t>(tokens_.size());
  const int32_t logits_from = request.logits == Logits::kAll    ? old_size
                              : request.logits == Logits::kLast ? size - 1
                                                                : std::numeric_limits<int32_t>::max();
  const Replay exact = ExactReplay(loaded_.config(), computed_, std::min(logits_from, size - 1));
  const Replay& replay = request.replay == nullptr ? exact : *request.replay;
  std::vector<float> logits;
  while (computed_ < size) {
    if (request.go_on && !request.go_on()) {
      // Windows of later layers hold only what this prompt's end needs: nothing can go on from the middle.
      Clear();
      return Error(Code::kCancelled, "cancelled within a prompt of {} tokens", size);
    }
    const int32_t end = static_cast<int32_t>(std::min<int64_t>(size, computed_ + options_.chunk));
    DI_RETURN_IF_ERROR(RunChunk(computed_, end, logits_from, replay, &logits));
    computed_ = end;
  }
  return logits;
}

void Session::FillLookback(int32_t position, int32_t* out) const {
  const auto count = static_cast<int32_t>(std::max<int64_t>(loaded_.config().engram.ngram_max, 1));
  bool blocked = false;
  for (int32_t back = 0; back < count; ++back) {
    const int32_t p = position - back;
    blocked = blocked || p < 0 || is_image_[static_cast<size_t>(p)] != 0;
    out[back] = blocked ? -1 : tokens_[static_cast<size_t>(p)];
  }
}

Status Session::RunChunk(int32_t begin, int32_t end, int32_t logits_from, const Replay& replay, std::vector<float>* logits) {
  const auto rows = static_cast<size_t>(end - begin);
  const auto lookback = static_cast<size_t>(std::max<int64_t>(loaded_.config().engram.ngram_max, 1));
  std::vector<int32_t> window(rows * lookback), wanted;
  for (size_t r = 0; r < rows; ++r) {
    const int32_t position = begin + static_cast<int32_t>(r);
    FillLookback(position, window.data() + r * lookback);
    if (position >= logits_from) wanted.push_back(static_cast<int32_t>(r));
  }
  backend::Backend& device = loaded_.backend();
  const auto hidden = static_cast<size_t>(loaded_.config().hidden_size);
  if (!embeds_.empty()) {
    DI_CHECK(begin >= embeds_begin_);
    const float* first = embeds_.data() + static_cast<size_t>(begin - embeds_begin_) * hidden;
    DI_ASSIGN_OR_RETURN(device_embeds_, backend::Upload(device, std::span<const float>(first, rows * hidden)));
  }
  const Segment segment{.begin = begin,
                        .end = end,
                        .run_from = replay.run_from,
                        .window_floor = replay.window_floor,
                        .global_floor = replay.global_floor};
  const Step step{.segments = {&segment, 1},
                  .tokens = window,
                  .ids = std::span(tokens_).subspan(static_cast<size_t>(begin), rows),
                  .is_image = std::span(is_image_).subspan(static_cast<size_t>(begin), rows),
                  .embeds = embeds_.empty() ? nullptr : device_embeds_.as<float>(),
                  .logit_rows = wanted};
  const float* result = model_->Forward(step, caches_->Prepare(begin, end), tap_);
  const size_t old_size = logits->size();
  logits->resize(old_size + wanted.size() * static_cast<size_t>(loaded_.config().vocab_size));
  device.CopyToHost(logits->data() + old_size, result, (logits->size() - old_size) * sizeof(float));
  DI_RETURN_IF_ERROR(device.Synchronize());
  return loaded_.checkpoint().CheckIntact();
}

void Session::Rewind(int32_t position) {
  DI_CHECK(position >= 0 && position <= static_cast<int32_t>(tokens_.size()));
  caches_->ForgetWindows();
  computed_ = position;
}

void Session::Clear() {
  tokens_.clear();
  is_image_.clear();
  computed_ = 0;
}

int64_t Session::cache_bytes() const { return caches_->size_bytes(); }

}  // namespace deepinfer::engine
