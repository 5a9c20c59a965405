// SPDX-License-Identifier: Apache-2.0
// Speed of the CUDA backend's ops at the published shapes, beside the card's own limits measured in the same run.
//   cuda_bench [GROUP...]     groups: copy experts experts8 inputs8 linear linear8 head attention index mhc rows (default: all), invariance
// Weights and inputs are random; times are of replayed CUDA graphs (harness.h). Lines: op, shape, value, unit, note.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "backend/cuda/launch.h"
#include "backend/cuda/linear/aligned_inputs.h"
#include "backend/cuda/linear/gemm.h"
#include "backend/cuda/moe/dispatch.h"
#include "harness.h"
#include "numeric/quantize.h"

namespace deepinfer::bench {
namespace {

using namespace backend;

constexpr int64_t kHidden = 5120, kInter = 2304, kHeads = 64, kDim = 512, kRope = 64;

double g_copy_gb_per_s = 0;

const char* Name(Activations a) { return a == Activations::kFp32 ? "fp32" : a == Activations::kBf16 ? "bf16" : "fp8"; }

void BenchCopy(Card& card) {
  constexpr int64_t kBytes = int64_t{2} << 30, kRowBytes = 64 << 10, kRows = kBytes / kRowBytes;
  auto* from = card.Room<uint8_t>(kBytes);
  auto* to = card.Room<uint8_t>(kBytes);
  std::vector<int32_t> index;
  for (int32_t i = 0; i < kRows; ++i) index.push_back(i);
  const auto rows = card.Put(index);
  const double seconds = card.Seconds(2, [&](int) { cuda::GatherRows(card.context(), {kRows, kRowBytes, from, rows, to}); });
  g_copy_gb_per_s = 2.0 * kBytes / seconds / 1e9;
  Report("copy", "2 GiB by a kernel, read + written", g_copy_gb_per_s, "GB/s", "");
}

std::string OfCopy(double gb_per_s) {
  return g_copy_gb_per_s > 0 ? fmt::format("{:.0f} % of copy", 100 * gb_per_s / g_copy_gb_per_s) : "";
}

std::vector<int32_t> Choices(int64_t rows, int64_t topk, int64_t experts, size_t* active) {
  std::mt19937 random(7);
  std::vector<int32_t> all;
  std::set<int32_t> used;
  for (int64_t r = 0; r < rows; ++r) {
    std::set<int32_t> row;
    while (static_cast<int64_t>(row.size()) < topk) row.insert(std::uniform_int_distribution<int32_t>(0, static_cast<int32_t>(experts) - 1)(random));
    all.insert(all.end(), row.begin(), row.end());
    used.insert(row.begin(), row.end());
  }
  *active = used.size();
  return all;
}

// `of`: with which activations the weights are read; matrices that FP8 products read have a layout of their own.
void BenchExpertsOf(Card& card, Activations of) {
  constexpr int64_t kExperts = 384;
  std::vector<ExpertWeights> weights;
  for (int64_t e = 0; e < kExperts; ++e) {
    weights.push_back({card.Weights(WeightFormat::kFp4Row32, kInter, kHidden, of), card.Weights(WeightFormat::kFp4Row32, kInter, kHidden, of),
                       card.Weights(WeightFormat::kFp4Row32, kHidden, kInter, of)});
  }
  constexpr double kExpertBytes = 18800640, kFlops = 3.0 * 2 * kHidden * kInter;
  struct Case {
    int64_t rows, experts, topk;
    Activations activations;
  };
  const Case cases[] = {{8, 384, 6, Activations::kBf16}, {32, 384, 6, Activations::kBf16}, {128, 384, 6, Activations::kBf16}, {32, 384, 6, Activations::kFp32},
                        {8, 48, 6, Activations::kBf16}, {32, 48, 6, Activations::kBf16}, {128, 48, 6, Activations::kBf16},
                        {256, 48, 6, Activations::kBf16}, {8192, 384, 6, Activations::kBf16}, {8192, 384, 6, Activations::kFp32},
                        {32768, 384, 6, Activations::kBf16}, {8192, 48, 6, Activations::kBf16},
                        {8, 384, 6, Activations::kFp8}, {32, 384, 6, Activations::kFp8}, {128, 384, 6, Activations::kFp8},
                        {8, 48, 6, Activations::kFp8}, {32, 48, 6, Activations::kFp8}, {128, 48, 6, Activations::kFp8},
                        {256, 48, 6, Activations::kFp8}, {8192, 384, 6, Activations::kFp8}, {8192, 48, 6, Activations::kFp8}};
  const auto x = card.Put(card.Normal(32768 * kHidden));
  const auto y = card.Room<float>(32768 * kHidden);
  for (const Case& c : cases) {
    if ((c.activations == Activations::kFp8) != (of == Activations::kFp8)) continue;
    size_t active = 0;
    const auto chosen = card.Put(Choices(c.rows, c.topk, c.experts, &active));
    const auto routing = card.Put(std::vector<float>(static_cast<size_t>(c.rows * c.topk), 0.25f));
    const double seconds = card.Seconds(c.rows > 1000 ? 1 : 4, [&](int) {
      cuda::Experts(card.context(), {.rows = c.rows, .hidden = kHidden, .topk = c.topk, .num_experts = c.experts, .x = x,
                                     .chosen = chosen, .weights = routing, .experts = weights.data(), .has_shared = false,
                                     .limit = 10.0f, .activations = c.activations, .y = y});
    });
    const std::string shape = fmt::format("{} tokens, {} experts, top-{}, {}", c.rows, c.experts, c.topk, Name(c.activations));
    if (c.rows <= 256) {
      const double gb = static_cast<double>(active) * kExpertBytes / seconds / 1e9;
      Report("experts", shape, gb, "GB/s", fmt::format("{:.1f} us, {} experts active, {}", seconds * 1e6, active, OfCopy(gb)));
    } else {
      Report("experts", shape, static_cast<double>(c.rows * c.topk) * kFlops / seconds / 1e12, "TFLOP/s", fmt::format("{:.2f} ms", seconds * 1e3));
    }
  }
}

void BenchExperts(Card& card) { BenchExpertsOf(card, Activations::kBf16); }
void BenchExpertsFp8(Card& card) { BenchExpertsOf(card, Activations::kFp8); }

// What FP8 products read and leave: rows rounded and laid out, gathered for the experts, and the experts' outputs summed.
void BenchInputsFp8(Card& card) {
  constexpr int64_t kTopk = 6, kMost = 8192;
  constexpr cuda::InputForm kForm{.activations = Activations::kFp8, .aligned = true};
  const auto x = card.Put(card.Normal(kMost * 8192));
  const auto x_bf16 = card.Room<uint16_t>(kMost * kTopk * kHidden);
  const auto y = card.Room<float>(kMost * kHidden);
  const auto report = [](const std::string& what, int64_t rows, int64_t bytes, double seconds) {
    const double gb = static_cast<double>(bytes) / seconds / 1e9;
    Report("inputs8", fmt::format("{}, {} rows", what, rows), gb, "GB/s", fmt::format("{:.1f} us, {}", seconds * 1e6, OfCopy(gb)));
  };
  for (const int64_t rows : {32, 256, 8192}) {
    const int64_t positions = rows * kTopk;
    for (const int64_t cols : {kHidden, int64_t{8192}}) {
      report(fmt::format("pack {} of fp32", cols), rows, rows * cols * 5, card.Seconds(4, [&](int) {
        cuda::PackInputs(card.context(), {.x = x, .x_stride = cols, .rows = rows, .cols = cols, .form = kForm});
      }));
    }
    report(fmt::format("pack {} of bf16", kInter), positions, positions * kInter * 3, card.Seconds(4, [&](int) {
      cuda::PackInputs(card.context(), {.x_bf16 = x_bf16, .x_stride = kInter, .rows = positions, .cols = kInter, .form = kForm});
    }));
    std::vector<int32_t> map, slots;
    for (int64_t i = 0; i < positions; ++i) map.push_back(static_cast<int32_t>(i * 7 % rows));
    for (int64_t i = 0; i < positions; ++i) slots.push_back(static_cast<int32_t>(i % rows * kTopk + i / rows));
    const auto* device_map = card.Put(map);
    const auto* device_slots = card.Put(slots);
    const int64_t chunks = kHidden / 128;
    const auto laid = cuda::InputsAt(card.Room<uint8_t>(cuda::PackedInputBytes(rows, chunks, kForm)), rows, chunks, kForm);
    report(fmt::format("gather {}", kHidden), positions, positions * kHidden * 2, card.Seconds(4, [&](int) {
      cuda::GatherAlignedInputs(card.context(), laid, chunks, device_map, positions);
    }));
    report(fmt::format("sum {} of bf16", kHidden), positions, positions * kHidden * 2 + rows * kHidden * 4, card.Seconds(4, [&](int) {
      cuda::Combine(card.context(), {.rows = rows, .topk = kTopk, .hidden = kHidden, .outputs_bf16 = x_bf16,
                                     .position_of_slot = device_slots, .y = y});
    }));
  }
}

struct LinearShape {
  const char* name;
  int64_t outputs, inputs, groups;
};
constexpr LinearShape kLinears[] = {{"wq_a", 1280, 5120, 1}, {"wkv", 512, 5120, 1}, {"wq_b", 32768, 1280, 1}, {"wo_a", 8192, 4096, 8},
                                    {"wo_b", 5120, 8192, 1}, {"shared w1", 2304, 5120, 1}, {"shared w2", 5120, 2304, 1}};

void BenchLinearOf(Card& card, Activations of) {
  const auto x = card.Put(card.Normal(8192 * 32768));
  const auto y = card.Room<float>(int64_t{8192} * 32768);
  for (const LinearShape& s : kLinears) {
    if (of == Activations::kFp8 && s.groups > 1) continue;  // wo_a: not rounded to FP8
    std::vector<Matrix> copies;
    const double bytes = static_cast<double>(s.outputs * s.inputs) * (1 + 1.0 / 1024);
    for (int i = 0; i < std::clamp(static_cast<int>(4e8 / bytes), 2, 64); ++i) {
      copies.push_back(card.Weights(WeightFormat::kFp8Tile32, s.outputs, s.inputs, of));
    }
    for (const auto& [rows, activations] : {std::pair<int64_t, Activations>{1, of}, {8, of}, {32, of}, {32, Activations::kFp32}, {64, of},
                                            {128, of}, {256, of}, {8192, of}, {8192, Activations::kFp32}}) {
      if (of == Activations::kFp8 && activations != of) continue;
      const double seconds = card.Seconds(rows > 1000 ? 2 : static_cast<int>(copies.size()), [&, r = rows, a = activations](int i) {
        cuda::Linear(card.context(), {.rows = r, .w = copies[static_cast<size_t>(i) % copies.size()], .groups = s.groups, .activations = a,
                                      .x = x, .x_stride = s.groups * s.inputs, .y = y, .y_stride = s.outputs});
      });
      const std::string shape = fmt::format("{} {} x {} fp8, {} tokens, {}", s.name, s.outputs, s.inputs, rows, Name(activations));
      if (rows <= 256) {
        Report("linear", shape, bytes / seconds / 1e9, "GB/s", fmt::format("{:.1f} us, {}", seconds * 1e6, OfCopy(bytes / seconds / 1e9)));
      } else {
        Report("linear", shape, 2.0 * static_cast<double>(rows * s.outputs * s.inputs) / seconds / 1e12, "TFLOP/s", fmt::format("{:.1f} us", seconds * 1e6));
      }
    }
  }
}

void BenchLinear(Card& card) { BenchLinearOf(card, Activations::kBf16); }
void BenchLinearFp8(Card& card) { BenchLinearOf(card, Activations::kFp8); }

// What it costs that the number of spans, which the bits depend on, is a function of the matrix alone: each linear with the spans that
// would be fastest for so many tokens.
void BenchInvariance(Card& card) {
  const auto x = card.Put(card.Normal(8192 * 32768));
  const auto y = card.Room<float>(int64_t{8192} * 32768);
  for (const LinearShape& s : kLinears) {
    std::vector<Matrix> copies;
    for (int i = 0; i < std::clamp(static_cast<int>(2e8 / static_cast<double>(s.outputs * s.inputs)), 2, 32); ++i) {
      copies.push_back(card.Weights(WeightFormat::kFp8Tile32, s.outputs, s.inputs));
    }
    for (const int64_t rows : {1, 32, 128, 256, 8192}) {
      const auto seconds = [&](int spans) {
        cuda::TestOnlySetSpans(spans);
        return card.Seconds(rows > 1000 ? 2 : static_cast<int>(copies.size()), [&](int i) {
          cuda::Linear(card.context(), {.rows = rows, .w = copies[static_cast<size_t>(i) % copies.size()], .groups = s.groups,
                                        .activations = Activations::kBf16, .x = x, .x_stride = s.groups * s.inputs, .y = y,
                                        .y_stride = s.outputs});
        });
      };
      const double fixed = seconds(0);
      double best = fixed;
      int best_spans = 0;
      for (const int spans : {1, 2, 3, 4, 5, 6, 8, 10, 13, 16, 20}) {
        const double time = seconds(spans);
        if (time < best) best = time, best_spans = spans;
      }
      cuda::TestOnlySetSpans(0);
      Report("cost of invariance", fmt::format("{} {} x {} fp8, {} tokens, bf16", s.name, s.outputs, s.inputs, rows), 100 * fixed / best, "%",
             best_spans == 0 ? fmt::format("{:.1f} us, no faster one", fixed * 1e6)
                             : fmt::format("{:.1f} us, {:.1f} with {} spans", fixed * 1e6, best * 1e6, best_spans));
    }
  }
}

// The head: bf16 weights, fp32 inputs in three parts. Its products are three times those of one part.
void BenchHead(Card& card) {
  constexpr int64_t kVocabulary = 129280;
  const Matrix w = card.Weights(WeightFormat::kBf16, kVocabulary, kHidden);
  const auto x = card.Put(card.Normal(256 * kHidden));
  const auto y = card.Room<float>(256 * kVocabulary);
  for (const int64_t rows : {1, 32, 128, 256}) {
    const double seconds = card.Seconds(2, [&](int) {
      cuda::Linear(card.context(), {.rows = rows, .w = w, .groups = 1, .activations = Activations::kFp32, .x = x, .x_stride = kHidden, .y = y, .y_stride = kVocabulary});
    });
    const double gb = 2.0 * kVocabulary * kHidden / seconds / 1e9;
    Report("head", fmt::format("{} x {} bf16, {} tokens, fp32", kVocabulary, kHidden, rows), gb, "GB/s",
           fmt::format("{:.1f} us, {}, {:.0f} TFLOP/s in three parts", seconds * 1e6, OfCopy(gb), 6.0 * static_cast<double>(rows) * kVocabulary * kHidden / seconds / 1e12));
  }
}

struct Caches {
  WindowCache window;
  GlobalCache global;
};

// `requests` requests of `tokens` tokens each: random codes, scales around one. They share pages beyond a memory limit.
Caches MakeCaches(Card& card, int requests, int tokens, int ratio) {
  Caches c;
  c.window = {.pages_stride = 2, .dim = kDim};
  c.global = {.blocks_stride = (tokens + kBlockTokens - 1) / kBlockTokens, .ratio = ratio, .dim = kDim, .index_dim = 128};
  std::mt19937 random(3);
  const auto fill = [&](size_t n) {
    std::vector<uint8_t> bytes(n);
    // Drawing is slow: long arrays repeat a prime-length run.
    constexpr size_t kDrawn = 1000003;
    for (size_t i = 0; i < n; ++i) bytes[i] = i < kDrawn ? static_cast<uint8_t>(random() & 0x77) : bytes[i - kDrawn];
    return reinterpret_cast<std::byte*>(card.Put(bytes));
  };
  const int64_t blocks = int64_t{requests} * c.global.blocks_stride, blocks_kept = std::min<int64_t>(blocks, 8192);
  c.window.base = fill(static_cast<size_t>(2 * requests * c.window.page_bytes()));
  c.global.base = fill(static_cast<size_t>(blocks_kept * c.global.block_bytes()));
  std::vector<int32_t> pages, table;
  for (int i = 0; i < 2 * requests; ++i) pages.push_back(i);
  for (int64_t i = 0; i < blocks; ++i) table.push_back(static_cast<int32_t>(i * 7919 % blocks_kept));
  c.window.pages = card.Put(pages);
  c.window.first_page = card.Put(std::vector<int32_t>(static_cast<size_t>(requests), (tokens - kBlockTokens) / kBlockTokens - 1));
  c.global.blocks = card.Put(table);
  return c;
}

// `requests` requests of `tokens` index keys of normal values each; they share blocks beyond a memory limit. With `far_apart` the
// scales within a key differ by 2^10.
GlobalCache MakeIndexCache(Card& card, int requests, int tokens, bool far_apart) {
  constexpr int kKeys = 65521, kGroups = 4, kCodes = 16;  // of a group of 32 channels
  GlobalCache cache{.blocks_stride = (tokens + kBlockTokens - 1) / kBlockTokens, .ratio = 1, .dim = kDim, .index_dim = 32 * kGroups};
  const auto values = card.Normal(kKeys * cache.index_dim);
  std::vector<uint8_t> codes(kKeys * kGroups * kCodes), scales(kKeys * kGroups);
  for (size_t group = 0; group < scales.size(); ++group) {
    scales[group] = numeric::QuantizeIndexBlock(&values[group * 32], &codes[group * kCodes]);
    if (far_apart && group % kGroups == 0) scales[group] -= 10;
  }
  const int64_t blocks = int64_t{requests} * cache.blocks_stride, blocks_kept = std::min<int64_t>(blocks, 8192), rows = cache.rows_per_block();
  std::vector<uint8_t> bytes(static_cast<size_t>(blocks_kept * cache.block_bytes()));
  for (int64_t i = 0; i < blocks_kept * rows; ++i) {
    uint8_t* block = &bytes[static_cast<size_t>(i / rows * cache.block_bytes())];
    std::copy_n(&codes[static_cast<size_t>(i % kKeys * kGroups * kCodes)], kGroups * kCodes, block + cache.index_codes_offset() + i % rows * kGroups * kCodes);
    std::copy_n(&scales[static_cast<size_t>(i % kKeys * kGroups)], kGroups, block + cache.index_scales_offset() + i % rows * kGroups);
  }
  std::vector<int32_t> table;
  for (int64_t i = 0; i < blocks; ++i) table.push_back(static_cast<int32_t>(i * 7919 % blocks_kept));
  cache.base = reinterpret_cast<std::byte*>(card.Put(bytes));
  cache.blocks = card.Put(table);
  return cache;
}

void BenchAttention(Card& card) {
  constexpr int kTokens = 8192;
  struct Case {
    int requests, per_request, topk;
  };
  constexpr Activations activations = Activations::kBf16;
  for (const auto& [requests, per_request, topk] :
       {Case{1, 1, 512}, {1, 1, 0}, {32, 1, 512}, {32, 1, 0}, {64, 1, 512}, {128, 1, 512}, {128, 6, 512}, {256, 1, 512}, {256, 1, 0}, {8, 1024, 512}, {8, 1024, 0}}) {
    const Caches caches = MakeCaches(card, requests, kTokens, 1);
    const int64_t rows = int64_t{requests} * per_request;
    std::mt19937 random(5);
    std::vector<int32_t> positions, owners, selected;
    for (int64_t r = 0; r < rows; ++r) {
      positions.push_back(kTokens - 1 - kBlockTokens + static_cast<int32_t>(r % per_request % kBlockTokens));
      owners.push_back(static_cast<int32_t>(r / per_request));
      std::vector<int32_t> row;
      for (int k = 0; k < topk; ++k) row.push_back(k * 15 + static_cast<int32_t>(random() % 15));
      selected.insert(selected.end(), row.begin(), row.end());
    }
    const AttentionParams p{.rows = rows, .heads = kHeads, .dim = kDim, .rope_dim = kRope, .q = card.Put(card.Normal(rows * kHeads * kDim)),
                            .table = card.Put(card.Normal(rows * kRope)), .positions = card.Put(positions), .requests = card.Put(owners),
                            .window = 128, .window_floor = card.Put(std::vector<int32_t>(static_cast<size_t>(rows), 0)),
                            .window_cache = caches.window, .has_latents = topk > 0, .latent_cache = topk > 0 ? caches.global : GlobalCache{}, .topk = topk,
                            .selected = card.Put(selected),
                            .selected_count = card.Put(std::vector<int32_t>(static_cast<size_t>(rows), topk)),
                            .sink = card.Put(card.Normal(kHeads)), .scale = 0.0442f, .activations = activations, .out = card.Room<float>(rows * kHeads * kDim)};
    const double seconds = card.Seconds(1, [&](int) { cuda::Attention(card.context(), p); });
    const double flops = 4.0 * static_cast<double>(rows) * kHeads * kDim * (128 + topk);
    Report("attention", fmt::format("{} requests x {} rows, 128 + {} keys, {}", requests, per_request, topk, Name(activations)), flops / seconds / 1e12, "TFLOP/s",
           fmt::format("{:.1f} us", seconds * 1e6));
  }
}

void BenchIndex(Card& card) {
  constexpr int64_t kBlockSize = 8, kBlocks = 2048;
  struct Case {
    int requests, per_request, tokens;
    bool candidates = false;  // the keys of 2,048 candidate blocks of each row, all over the context
    bool far_apart = false;
  };
  for (const Case& c : {Case{64, 1, 8192}, {16, 1, 65536}, {2, 1, 1 << 20}, {128, 1, 65536}, {128, 6, 8192}, {1, 2048, 8192}, {1, 1024, 65536},
                        {128, 1, 131072, true}, {1, 1024, 65536, true}, {16, 1, 65536, false, true}, {1, 1024, 65536, false, true}}) {
    const GlobalCache cache = MakeIndexCache(card, c.requests, c.tokens, c.far_apart);
    const int64_t rows = int64_t{c.requests} * c.per_request, keys = c.candidates ? kBlocks * kBlockSize : c.tokens;
    std::vector<int32_t> positions, owners, blocks;
    for (int64_t r = 0; r < rows; ++r) {
      positions.push_back(c.tokens - 1 - static_cast<int32_t>(c.candidates ? 0 : r % c.per_request));
      owners.push_back(static_cast<int32_t>(r / c.per_request));
      for (int64_t b = 0; c.candidates && b < kBlocks; ++b) blocks.push_back(static_cast<int32_t>((b + 1) * c.tokens / (kBlockSize * kBlocks) - 1));
    }
    auto q = card.Normal(rows * 32 * 128);
    numeric::RoundTripIndex(q.data(), static_cast<int>(q.size()));
    const IndexSelectParams p{.rows = rows, .heads = 32, .q = card.Put(q), .weights = card.Put(card.Normal(rows * 32)),
                              .weight_scale = 0.177f, .score_scale = 0.088f, .positions = card.Put(positions), .requests = card.Put(owners),
                              .cache = cache, .topk = 512, .candidates = c.candidates ? Candidates::kRestrict : Candidates::kNone,
                              .block_size = kBlockSize, .blocks_max = kBlocks, .blocks = card.Put(blocks),
                              .block_count = card.Put(std::vector<int32_t>(static_cast<size_t>(rows), kBlocks)),
                              .selected = card.Room<int32_t>(rows * 512), .selected_count = card.Room<int32_t>(rows)};
    const double seconds = card.Seconds(4, [&](int) { cuda::IndexSelect(card.context(), p); });
    const double gb = static_cast<double>(rows * keys) * 68 / seconds / 1e9;
    Report("index select", fmt::format("{} requests x {} rows, {}{} keys{}", c.requests, c.per_request, c.candidates ? "candidates, " : "", keys, c.far_apart ? ", scales far apart" : ""), gb, "GB/s",
           fmt::format("{:.1f} us, {:.1f} TFLOP/s, {}", seconds * 1e6, 2.0 * static_cast<double>(rows * keys) * 32 * 128 / seconds / 1e12, OfCopy(gb)));
  }
}

void BenchMhc(Card& card) {
  constexpr int64_t kStreams = 4, kOutputs = 24, kFlat = kStreams * kHidden;
  const Matrix fn = card.Weights(WeightFormat::kF32, kOutputs, kFlat);
  const auto base = card.Put(card.Normal(kOutputs)), scale = card.Put(card.Normal(3)), norm = card.Put(card.Normal(kHidden));
  for (const int64_t rows : {1, 32, 256, 4096, 8192}) {
    const auto x = card.Put(card.Normal(rows * kFlat)), y = card.Put(card.Normal(rows * kHidden)), collapse = card.Put(card.Normal(rows * kStreams));
    const auto pre = card.Room<float>(rows * kStreams), post = card.Room<float>(rows * kStreams), comb = card.Room<float>(rows * 16), out = card.Room<float>(rows * kHidden);
    const HcMixParams of_mix{.rows = rows, .streams = kStreams, .hidden = kHidden, .x = x, .fn = fn, .base = base, .scale = scale,
                             .norm_eps = 1e-20f, .hc_eps = 1e-6f, .sinkhorn_iters = 20, .collapse = collapse, .norm_weight = norm,
                             .pre = pre, .post = post, .comb = comb, .collapsed = out};
    const HcExpandParams of_expand{rows, kStreams, kHidden, y, post, comb, x};
    const double mix = card.Seconds(4, [&](int) { cuda::HcMix(card.context(), of_mix); });
    const double expand = card.Seconds(4, [&](int) { cuda::HcExpand(card.context(), of_expand); });
    const double both = card.Seconds(4, [&](int) { cuda::HcExpandMix(card.context(), of_expand, of_mix); });
    const double row_bytes = 4.0 * kHidden * static_cast<double>(rows);
    Report("mHC mix", fmt::format("{} rows", rows), 5 * row_bytes / mix / 1e9, "GB/s", fmt::format("{:.1f} us, {}", mix * 1e6, OfCopy(5 * row_bytes / mix / 1e9)));
    Report("mHC expand", fmt::format("{} rows", rows), 9 * row_bytes / expand / 1e9, "GB/s", fmt::format("{:.1f} us, {}", expand * 1e6, OfCopy(9 * row_bytes / expand / 1e9)));
    Report("mHC expand and mix", fmt::format("{} rows", rows), 10 * row_bytes / both / 1e9, "GB/s", fmt::format("{:.1f} us, {}", both * 1e6, OfCopy(10 * row_bytes / both / 1e9)));
  }
}

void BenchRows(Card& card) {
  constexpr int64_t kExperts = 384, kTopk = 6, kRowsMax = 8192;
  const Matrix gate = card.Weights(WeightFormat::kBf16, kExperts, kHidden);
  const auto bias = card.Put(card.Normal(kExperts)), table = card.Put(card.Normal(kRowsMax * kRope));
  const auto x = card.Put(card.Normal(kRowsMax * kHeads * kDim));
  const auto experts = card.Room<int32_t>(kRowsMax * kTopk);
  const auto weights = card.Room<float>(kRowsMax * kTopk);
  for (const int64_t rows : {1, 32, 256, 2048, 8192}) {
    const double route = card.Seconds(4, [&](int) {
      cuda::Route(card.context(), {.rows = rows, .topk = kTopk, .x = x, .gate = gate, .bias = bias, .image_bias = bias, .is_image = nullptr,
                                   .normalize = true, .scale = 1.5f, .experts = experts, .weights = weights});
    });
    Report("route", fmt::format("{} rows, 384 experts, top-6", rows), route * 1e6, "us", "");
    const double rope = card.Seconds(4, [&](int) { cuda::Rope(card.context(), {.rows = rows, .heads = kHeads, .dim = kDim, .rope_dim = kRope, .table = table, .x = x}); });
    Report("rope", fmt::format("{} rows, 64 heads, 64 of 512 channels", rows), rope * 1e6, "us", "");
  }
}

}  // namespace
}  // namespace deepinfer::bench

int main(int argc, char** argv) {
  using namespace deepinfer::bench;
  const std::set<std::string> wanted(argv + 1, argv + argc);
  const std::pair<const char*, void (*)(Card&)> groups[] = {{"copy", BenchCopy}, {"experts", BenchExperts}, {"experts8", BenchExpertsFp8}, {"inputs8", BenchInputsFp8}, {"linear", BenchLinear}, {"linear8", BenchLinearFp8}, {"head", BenchHead},
                                                            {"attention", BenchAttention}, {"index", BenchIndex}, {"mhc", BenchMhc}, {"rows", BenchRows},
                                                            {"invariance", BenchInvariance}};
  for (const auto& [name, run] : groups) {
    if (wanted.empty() ? run == BenchInvariance : wanted.count(name) == 0) continue;
    Card card;
    run(card);
  }
}
