// SPDX-License-Identifier: Apache-2.0
// Speed of whole layers at the published shapes on a slice (tools/make_slice, its seven layers are one of each kind): a
// decode step and prefill, layer by layer, and the published stack of 40 layers by extrapolation, beside its bound.
//   layer_bench SLICE_DIRECTORY [bf16|fp8|fp32] [decode] [prefill] [ops] [launches] [drawn] [BATCH]
// "ops": what each op of the seven layers takes, for a few shapes; of another model of all its layers, at 1,024 positions.
// "launches": what each launch of a decode step adds to it, in order. BATCH: decode of this one alone.
// "drawn": the router's bias stays as random as it is, and loads experts unevenly.
// The time of a layer is the difference of two stacks, one with it and one without. Routed experts: those of the slice, 48
// by default: with the published 384 on 8 GPUs each has 48, and a batch of B on each of them brings B * 6 / 48 tokens to
// each, as here. The exchange between GPUs is left out.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <utility>

#include "launch_times.h"
#include "layer_cost.h"
#include "layer_stack.h"

namespace deepinfer::bench {
namespace {

// How often each kind stands in the published stack: layers 0; 1 and 14 (Engram) counted as one of kind 1 and one more Engram;
// 2, 8, 14; 15 that reuse those; 20; 24, 28, 32, 36; 15 that reuse those.
constexpr double kCounts[] = {1, 1, 3, 15, 1, 4, 15};
constexpr double kExtraEngrams = 1;

double Stack(const std::vector<double>& prefix) {
  double total = prefix[0];
  for (size_t k = 0; k < std::size(kCounts); ++k) total += kCounts[k] * (prefix[k + 1] - prefix[k]);
  return total + kExtraEngrams * ((prefix[2] - prefix[1]) - (prefix[1] - prefix[0]));
}

std::string Layers(const std::vector<double>& prefix) {
  std::string line = fmt::format("embed+head {:.0f}", prefix[0] * 1e6);
  for (size_t k = 0; k + 1 < prefix.size(); ++k) line += fmt::format(", L{} {:.0f}", k, (prefix[k + 1] - prefix[k]) * 1e6);
  return line;
}

// batch: 0 for all.
void Decode(LayerStack& stack, int only_batch) {
  for (const int context : {8192, 131072}) {
    for (const int batch : {1, 32, 128, 256}) {
      if (only_batch != 0 && batch != only_batch) continue;
      stack.SetCaches(batch, context);
      const std::vector<double> prefix = stack.Decode(batch, context);
      const double seconds = Stack(prefix);
      const Cost cost = DecodeCost(batch, context, stack.num_experts());
      fmt::print("decode  batch {:>3} context {:>6}: step {:7.2f} ms, {:6.0f} tokens/s; bound {:6.2f} ms of bytes ({:.1f} GB), "
                 "{:5.2f} ms of FLOPs; us: {}\n",
                 batch, context, seconds * 1e3, batch / seconds, cost.bytes / stack.copy_bytes_per_s() * 1e3, cost.bytes / 1e9,
                 cost.flops / kBf16Peak * 1e3, Layers(prefix));
      std::fflush(stdout);
    }
  }
}

// Seconds of one chunk through the published stack when the late layers (21 to 39) see `late_rows` of its rows each and
// layer 20 attends only for as many as the first of them.
double At(const std::map<int, double>& seconds, double rows) {
  if (rows <= 0) return 0;
  auto above = seconds.lower_bound(static_cast<int>(rows));
  if (above == seconds.end()) --above;
  if (above == seconds.begin()) return above->second;
  const auto below = std::prev(above);
  return below->second + (above->second - below->second) * (rows - below->first) / (above->first - below->first);
}

void Prefill(LayerStack& stack) {
  constexpr int kChunk = 8192;
  for (const int context : {8192, 65536}) {
    // Kind -> rows of the chunk -> seconds, at the end of the context.
    std::vector<std::map<int, double>> kinds(7);
    double ends = 0;
    stack.SetCaches(1, context);
    for (const int rows : {128, 2048, kChunk}) {
      const std::vector<double> prefix = stack.Prefill(rows, context);
      for (size_t k = 0; k < 7; ++k) kinds[k][rows] = std::max(prefix[k + 1] - prefix[k], 0.0);
      if (rows == kChunk) {
        ends = prefix[0];
        fmt::print("prefill chunk of {} rows at the end of {}: us: {}\n", rows, context, Layers(prefix));
      }
    }
    const double engram = kinds[1][kChunk] - kinds[0][kChunk];
    const double early = kinds[0][kChunk] + kinds[1][kChunk] + 3 * kinds[2][kChunk] + 15 * kinds[3][kChunk] + engram;
    const double chunks = static_cast<double>(context) / kChunk;
    for (const bool exact : {false, true}) {
      // Late layers run once, on the last rows of the prompt; layer 20 stores keys for all rows: not counted apart, it is
      // taken as running on as many rows as the layer after it.
      double late = At(kinds[4], exact ? std::min(19 * 127 + 1, context) : 128);
      for (int layer = 21; layer < 40; ++layer) {
        const double rows = exact ? std::min((39 - layer) * 127 + 1, context) : std::min(128, 128);
        late += At(kinds[layer % 4 == 0 ? 5 : 6], rows);
      }
      const double seconds = early * chunks + late + ends;
      const Cost cost = PrefillCost(context, exact, stack.num_experts());
      fmt::print("prefill {:>6} tokens, {}: {:8.1f} ms, {:6.0f} tokens/s; bound {:.1f} ms of FLOPs ({:.1f} TFLOP), "
                 "{:.1f} ms of bytes; {:.0f} TFLOP/s\n",
                 context, exact ? "exact  " : "decoder", seconds * 1e3, context / seconds, cost.flops / kBf16Peak * 1e3, cost.flops / 1e12,
                 cost.bytes / stack.copy_bytes_per_s() * 1e3, cost.flops / seconds / 1e12);
      std::fflush(stdout);
    }
  }
}

void Ops(LayerStack& stack) {
  constexpr int kLong = 131072;
  const auto layers = static_cast<int>(stack.num_layers());
  const bool is_slice = stack.context_max() >= kLong;
  std::vector<std::pair<int, int>> shapes = {{1, 8192}, {32, 8192}, {256, 8192}, {128, kLong}};
  if (!is_slice) shapes = {{1, 1024}, {6, 1024}, {64, 1024}};
  stack.set_profile(true);
  for (const auto& [batch, context] : shapes) {
    fmt::print("decode, batch {}, context {}, {} layers\n", batch, context, layers);
    stack.SetCaches(batch, context);
    stack.Decode(batch, context);
  }
  if (!is_slice) return stack.set_profile(false);
  for (const int context : {8192, 65536}) {
    fmt::print("prefill, 8192 rows at the end of {}, 7 layers\n", context);
    stack.SetCaches(1, context);
    stack.Prefill(8192, context);
  }
  stack.set_profile(false);
}

// One line a launch; a layer's begin with the first mixes, what an Engram adds stands at the end of the layer before.
void Launches(LayerStack& stack, int only_batch) {
  std::vector<LaunchTime> launches;
  stack.set_after_passes([&] { launches = TimeLaunches(); });
  for (const auto& [batch, context] : {std::pair{1, 8192}, {32, 8192}, {128, 8192}, {256, 8192}, {128, 131072}}) {
    if (only_batch != 0 && batch != only_batch) continue;
    stack.SetCaches(batch, context);
    const double seconds = stack.Decode(batch, context).back();
    fmt::print("launches, batch {}, context {}, 7 layers: {:.1f} us\n", batch, context, seconds * 1e6);
    int mixes = 0;
    double sum = 0;
    for (const LaunchTime& launch : launches) {
      if (launch.kernel.find("MixKernel") != std::string::npos && mixes++ % 2 == 0) fmt::print("  layer {}\n", mixes / 2);
      sum += launch.seconds;
      fmt::print("    {:>7.1f} {:>9.1f}  {} ({}, {})\n", launch.seconds * 1e6, sum * 1e6, launch.kernel, launch.grid.x, launch.grid.y);
    }
    std::fflush(stdout);
  }
  stack.set_after_passes(nullptr);
}

}  // namespace
}  // namespace deepinfer::bench

int main(int argc, char** argv) {
  using namespace deepinfer;
  if (argc < 2) {
    fmt::print(stderr, "usage: layer_bench SLICE_DIRECTORY [bf16|fp8|fp32] [decode] [prefill] [ops] [launches] [drawn] [BATCH]\n");
    return 2;
  }
  std::set<std::string> words(argv + 2, argv + argc);
  std::string activations = "bf16";
  int batch = 0;
  std::erase_if(words, [&](const std::string& word) {
    const int number = std::atoi(word.c_str());
    if (number > 0) batch = number;
    return number > 0;
  });
  for (const char* name : {"bf16", "fp8", "fp32"}) {
    if (words.erase(name) > 0) activations = name;
  }
  bench::LayerStack stack(argv[1], activations);
  stack.set_balanced(words.erase("drawn") == 0);
  fmt::print("{} experts, activations {}, copy {:.0f} GB/s\n", stack.num_experts(), activations, stack.copy_bytes_per_s() / 1e9);
  if (words.count("ops") > 0) bench::Ops(stack);
  if (words.count("launches") > 0) bench::Launches(stack, batch);
  if (words.empty() || words.count("decode") > 0) bench::Decode(stack, batch);
  if (words.empty() || words.count("prefill") > 0) bench::Prefill(stack);
}
