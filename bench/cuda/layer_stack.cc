// SPDX-License-Identifier: Apache-2.0
#include "layer_stack.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <random>

#include "engine/kv_memory.h"
#include "op_timer.h"

namespace deepinfer::bench {

using backend::Buffer;
using backend::kBlockTokens;
using model::deepseek_v41::Model;
using model::deepseek_v41::ModelOptions;
using model::deepseek_v41::Segment;
using model::deepseek_v41::Step;
using model::deepseek_v41::Tap;
using Clock = std::chrono::steady_clock;

namespace {

double Since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

}  // namespace

void LayerStack::Must(const Status& status) const {
  if (status.ok()) return;
  fmt::print(stderr, "layer_bench: {}\n", status.message());
  std::exit(1);
}

LayerStack::LayerStack(const std::string& directory, const std::string& activations) {
  const auto parsed = engine::ParseActivations(activations);
  Must(parsed.status());
  activations_ = *parsed;
  const auto begin = Clock::now();
  auto loaded = engine::LoadedModel::Load(directory, {.name = "cuda"}, activations_);
  Must(loaded.status());
  loaded_ = *std::move(loaded);
  fmt::print("loaded in {:.1f} s\n", Since(begin));
  MeasureCopy();
}

template <typename T>
const T* LayerStack::Put(const std::vector<T>& values) {
  auto buffer = backend::Upload<T>(loaded_->backend(), values);
  Must(buffer.status());
  cache_buffers_.push_back(*std::move(buffer));
  return cache_buffers_.back().template as<T>();
}

// Random bytes without NaN codes: one piece of them, over and over.
Buffer LayerStack::Random(int64_t bytes) {
  backend::Backend& dev = loaded_->backend();
  constexpr int64_t kPiece = int64_t{16} << 20;
  std::mt19937_64 random(1);
  std::vector<uint64_t> piece(kPiece / 8);
  for (uint64_t& word : piece) word = random() & 0x7777777777777777u;
  auto buffer = dev.Allocate(static_cast<size_t>(bytes));
  Must(buffer.status());
  auto source = backend::Upload<uint64_t>(dev, piece);
  const std::vector<int32_t> zero = {0};
  auto index = backend::Upload<int32_t>(dev, zero);
  Must(source.status());
  Must(index.status());
  for (int64_t at = 0; at < bytes; at += kPiece) {
    const int64_t part = std::min(kPiece, bytes - at) / 16 * 16;
    constexpr int64_t kRows = 64;
    // In pieces of a row, so that many blocks copy.
    std::vector<int32_t> rows(kRows);
    std::iota(rows.begin(), rows.end(), 0);
    if (part == kPiece) {
      auto all = backend::Upload<int32_t>(dev, rows);
      dev.GatherRows({kRows, kPiece / kRows, source->data(), all->as<int32_t>(), buffer->as<std::byte>() + at});
    } else if (part > 0) {
      dev.GatherRows({1, part, source->data(), index->as<int32_t>(), buffer->as<std::byte>() + at});
    }
  }
  Must(dev.Synchronize());
  return *std::move(buffer);
}

void LayerStack::MeasureCopy() {
  backend::Backend& dev = loaded_->backend();
  constexpr int64_t kBytes = int64_t{2} << 30, kRowBytes = 64 << 10, kRows = kBytes / kRowBytes;
  std::vector<int32_t> rows(kRows);
  std::iota(rows.begin(), rows.end(), 0);
  const Buffer from = Random(kBytes), to = Random(kBytes);
  const int32_t* index = Put(rows);
  const auto run = [&](int times) {
    const auto begin = Clock::now();
    for (int i = 0; i < times; ++i) dev.GatherRows({kRows, kRowBytes, from.data(), index, to.data()});
    Must(dev.Synchronize());
    return Since(begin) / times;
  };
  run(3);
  copy_bytes_per_s_ = 2.0 * kBytes / run(20);
}

void LayerStack::SetCaches(int requests, int context) {
  const checkpoint::ModelConfig& config = loaded_->config();
  caches_ = {};
  cache_buffers_.clear();
  std::vector<int32_t> pages, first(static_cast<size_t>(requests), std::max((context - 1) / kBlockTokens - 1, 0));
  // Prefill writes and reads all pages of one request; decode needs two of each.
  const int32_t stride = requests == 1 ? (context + kBlockTokens - 1) / kBlockTokens : 2;
  if (requests == 1) first = {0};
  for (int32_t i = 0; i < requests * stride; ++i) pages.push_back(i);
  const int32_t *page_table = Put(pages), *first_page = Put(first);
  for (int64_t l = 0; l < config.num_layers; ++l) {
    backend::WindowCache cache{.pages = page_table,
                               .first_page = first_page,
                               .pages_stride = stride,
                               .dim = static_cast<int32_t>(config.head_dim)};
    cache_buffers_.push_back(Random(static_cast<int64_t>(pages.size()) * cache.page_bytes()));
    cache.base = cache_buffers_.back().as<std::byte>();
    caches_.windows.push_back(cache);
  }
  const int32_t blocks_each = (context + kBlockTokens - 1) / kBlockTokens;
  std::vector<int32_t> blocks(static_cast<size_t>(requests) * static_cast<size_t>(blocks_each));
  for (size_t i = 0; i < blocks.size(); ++i) blocks[i] = static_cast<int32_t>(i);
  std::shuffle(blocks.begin(), blocks.end(), std::mt19937(2));
  const int32_t* block_table = Put(blocks);
  std::vector<int32_t> slots(static_cast<size_t>(requests));
  std::iota(slots.begin(), slots.end(), 0);
  caches_.ring_slots = Put(slots);
  for (const int64_t source : config.kv_sources) {
    backend::GlobalCache cache = engine::GlobalLayout(config, source);
    cache_buffers_.push_back(Random(static_cast<int64_t>(blocks.size()) * cache.block_bytes()));
    cache.base = cache_buffers_.back().as<std::byte>();
    cache.blocks = block_table;
    cache.blocks_stride = blocks_each;
    caches_.globals.push_back(cache);
    cache_buffers_.push_back(Random(int64_t{requests} * model::deepseek_v41::kCompressorRing * 2 * config.head_dim * 4));
    caches_.compressor_state.push_back(cache.ratio > 1 ? cache_buffers_.back().as<float>() : nullptr);
  }
}

void LayerStack::Profile(const ModelOptions& options, const Step& step) {
  OpTimer timer(loaded_->backend());
  auto model = Model::Create(loaded_->config(), loaded_->weights(), timer, options);
  Must(model.status());
  (*model)->Forward(step, caches_);
  double all = 0;
  std::vector<std::pair<double, std::string>> lines;
  for (const auto& [op, total] : timer.totals()) {
    all += total.seconds;
    const double each = total.seconds * 1e6 / total.calls;
    lines.emplace_back(total.seconds, fmt::format("{:<24} {:>4} calls {:>9.1f} us each", op, total.calls, each));
  }
  std::sort(lines.rbegin(), lines.rend());
  for (const auto& [seconds, line] : lines) fmt::print("    {:>5.1f} %  {}\n", 100 * seconds / all, line);
  fmt::print("    sum of the ops {:.2f} ms\n", all * 1e3);
}

// A stack is timed beside those that are one layer shorter or longer: the card's clock follows its load and what ran before, and
// differences of times that were taken apart are off by more than a layer.
std::vector<double> LayerStack::Times(const ModelOptions& options, const Step& step, int rounds, int runs) {
  const auto layers = static_cast<size_t>(num_layers());
  if (profile_) {
    Profile(options, step);
    return {};
  }
  Balance(options, step);
  std::vector<checkpoint::ModelConfig> configs(layers + 1, loaded_->config());
  std::vector<std::unique_ptr<Model>> models;
  for (size_t n = 0; n <= layers; ++n) {
    configs[n].num_layers = static_cast<int64_t>(n);
    auto model = Model::Create(configs[n], loaded_->weights(), loaded_->backend(), options);
    Must(model.status());
    models.push_back(*std::move(model));
  }
  std::vector<std::vector<double>> times(layers + 1);
  for (int round = -1; round < rounds; ++round) {
    for (size_t n = 0; n <= layers; ++n) {
      const int now = round < 0 ? 3 : runs;
      const auto begin = Clock::now();
      for (int i = 0; i < now; ++i) models[n]->Forward(step, caches_);
      Must(loaded_->backend().Synchronize());
      if (round >= 0) times[n].push_back(Since(begin) / now);
    }
  }
  if (after_passes_) after_passes_();
  const auto median = [](std::vector<double> values) {
    std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
    return values[values.size() / 2];
  };
  // Medians of the differences, summed up.
  std::vector<double> prefix = {median(times[0])};
  for (size_t n = 1; n <= layers; ++n) {
    std::vector<double> layer;
    for (size_t round = 0; round < times[n].size(); ++round) layer.push_back(times[n][round] - times[n - 1][round]);
    prefix.push_back(prefix.back() + median(layer));
  }
  return prefix;
}

std::vector<double> LayerStack::Decode(int batch, int context) {
  const auto n = static_cast<size_t>(batch);
  const std::vector<int32_t> zeros(static_cast<size_t>(num_layers()) + 1);
  std::vector<Segment> segments;
  std::vector<int32_t> ids(n), logit_rows(n);
  const auto lookback = static_cast<size_t>(loaded_->config().engram.ngram_max);
  std::vector<int32_t> tokens(n * lookback);
  std::mt19937 random(3);
  for (int32_t& token : tokens) token = static_cast<int32_t>(random() % static_cast<uint64_t>(loaded_->config().vocab_size));
  for (size_t r = 0; r < n; ++r) {
    ids[r] = tokens[r * lookback];
    logit_rows[r] = static_cast<int32_t>(r);
    segments.push_back(
        {.request = static_cast<int32_t>(r), .begin = context - 1, .end = context, .run_from = zeros, .window_floor = zeros});
  }
  const Step step{.segments = segments, .tokens = tokens, .ids = ids, .logit_rows = logit_rows};
  return Times({.rows_max = batch, .logit_rows_max = batch, .activations = activations_}, step, 11, 4);
}

// Tokens of each expert, layer by layer, as the router sends them.
template <typename Take>
void LayerStack::CountTokens(Model& model, const Step& step, const Take& take) {
  model.Forward(step, caches_, [&](Tap what, int64_t layer, std::span<const int32_t> rows, const void* data, int64_t row_bytes) {
    if (what != Tap::kExperts) return;
    std::vector<int32_t> chosen(rows.size() * static_cast<size_t>(row_bytes) / sizeof(int32_t));
    loaded_->backend().CopyToHost(chosen.data(), data, chosen.size() * sizeof(int32_t));
    Must(loaded_->backend().Synchronize());
    std::vector<int> tokens(static_cast<size_t>(num_experts()));
    for (const int32_t expert : chosen) ++tokens[static_cast<size_t>(expert)];
    take(layer, tokens, static_cast<float>(chosen.size()) / static_cast<float>(num_experts()));
  });
}

// As training does it: experts with more tokens than the mean are chosen by a lower bias, those with fewer by a higher one, in
// smaller and smaller steps. Then says what became of it.
void LayerStack::Balance(const ModelOptions& options, const Step& step) {
  const size_t rows = step.ids.size();
  const int rounds = rows < 32 ? 0 : rows <= 512 ? 60 : 20;
  auto model = Model::Create(loaded_->config(), loaded_->weights(), loaded_->backend(), options);
  Must(model.status());
  const auto bias_of = [&](int64_t layer) {  // device memory
    return const_cast<float*>(loaded_->weights().layers[static_cast<size_t>(layer)].moe.bias.data());
  };
  std::vector<float> bias(static_cast<size_t>(num_experts()));
  for (int round = 0; balanced_ && round < rounds; ++round) {
    const float speed = 0.1f * std::pow(0.01f, static_cast<float>(round) / static_cast<float>(rounds));
    CountTokens(**model, step, [&](int64_t layer, const std::vector<int>& tokens, float mean) {
      loaded_->backend().CopyToHost(bias.data(), bias_of(layer), bias.size() * sizeof(float));
      Must(loaded_->backend().Synchronize());
      for (size_t e = 0; e < bias.size(); ++e) bias[e] += speed * std::clamp(1 - static_cast<float>(tokens[e]) / mean, -1.0f, 1.0f);
      loaded_->backend().CopyToDevice(bias_of(layer), bias.data(), bias.size() * sizeof(float));
    });
  }
  std::string fullest;
  float mean_tokens = 0;
  CountTokens(**model, step, [&](int64_t, const std::vector<int>& tokens, float mean) {
    fullest += fmt::format(" {}", *std::max_element(tokens.begin(), tokens.end()));
    mean_tokens = mean;
  });
  fmt::print("    {} rows: {:.1f} tokens an expert, the fullest of each layer:{}\n", rows, mean_tokens, fullest);
}

std::vector<double> LayerStack::Prefill(int rows, int context) {
  const auto n = static_cast<size_t>(rows);
  const std::vector<int32_t> zeros(static_cast<size_t>(num_layers()) + 1);
  const auto lookback = static_cast<size_t>(loaded_->config().engram.ngram_max);
  std::vector<int32_t> tokens(n * lookback), ids(n);
  const std::vector<int32_t> logit_rows = {rows - 1};
  std::mt19937 random(4);
  for (int32_t& token : tokens) token = static_cast<int32_t>(random() % static_cast<uint64_t>(loaded_->config().vocab_size));
  for (size_t r = 0; r < n; ++r) ids[r] = tokens[r * lookback];
  const Segment segment{.begin = context - rows, .end = context, .run_from = zeros, .window_floor = zeros};
  const Step step{.segments = {&segment, 1}, .tokens = tokens, .ids = ids, .logit_rows = logit_rows};
  // Few rows are recorded, so that launches do not count.
  return Times({.rows_max = rows, .logit_rows_max = rows <= 256 ? rows : 1, .activations = activations_}, step, 3, 1);
}

}  // namespace deepinfer::bench
