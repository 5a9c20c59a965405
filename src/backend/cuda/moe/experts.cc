// SPDX-License-Identifier: Apache-2.0
// The experts (spec/model.md 5) as grouped matrix products: slots sorted by expert, gate and up with SwiGLU and the
// routing weight in one kernel, down, and a sum over each row's choices in ascending order, the shared expert last.
#include <algorithm>
#include <vector>

#include "backend/cuda/launch.h"
#include "backend/cuda/linear/gemm_launch.h"
#include "backend/cuda/linear/inputs.h"
#include "backend/cuda/linear/packed.h"
#include "backend/cuda/linear/plain.h"
#include "backend/cuda/moe/dispatch.h"
#include "core/check.h"

namespace deepinfer::backend::cuda {
namespace {

// Rows per pass: bounds the scratch memory (outputs of 8,192 x 6 slots of 5,120 fp32 are 1 GB).
constexpr int64_t kRowsPerPass = 8192;

// What the two products of one kind of expert (routed, shared) have in common.
struct Group {
  ExpertWeights shape;                       // formats and sizes; data unused
  const uint8_t* const* up_down = nullptr;   // device: [2 * problems] gate and up, then [problems] down
  int problems = 1;
  int64_t rows = 0;                          // positions
  const Dispatch* dispatch = nullptr;        // nullptr: every row, weight 1
  int64_t tokens = 0;                        // expected per problem
};

bool SameShape(const Matrix& a, const Matrix& b) { return a.format == b.format && a.rows == b.rows && a.cols == b.cols; }

// Uploads the addresses once; later calls with the same weights find them.
const uint8_t* const* AddressTable(Context& context, const ExpertWeights* experts, int64_t n) {
  std::vector<const void*> table(static_cast<size_t>(3 * n));
  for (int64_t e = 0; e < n; ++e) {
    DI_CHECK(SameShape(experts[e].w1, experts[0].w1) && SameShape(experts[e].w3, experts[0].w1) &&
             SameShape(experts[e].w2, experts[0].w2));
    table[static_cast<size_t>(2 * e)] = experts[e].w1.data;
    table[static_cast<size_t>(2 * e + 1)] = experts[e].w3.data;
    table[static_cast<size_t>(2 * n + e)] = experts[e].w2.data;
  }
  return static_cast<const uint8_t* const*>(context.DeviceTable(std::move(table)));
}

// y[position] = x[position] times the matrices of its expert.
void Product(Context& context, const Group& g, const Matrix& w, const PackInputsParams& inputs, Epilogue epilogue,
             float limit, float* y) {
  const PackedInputs packed = PackInputs(context, inputs);
  if (packed.data == nullptr) return;
  const bool up = epilogue == Epilogue::kSwiGlu;
  const int64_t tiles = NumTiles(w.rows) * (up ? 2 : 1) * g.problems, chunks = NumChunks(w.cols);
  GemmParams p;
  p.epilogue = epilogue;
  p.matrices = g.up_down + (up ? 0 : 2 * g.problems);
  p.num_chunks = static_cast<int32_t>(chunks);
  p.spans = Spans(tiles, chunks, packed.parts);
  p.problem_rows = static_cast<int32_t>(w.rows);
  p.inputs = packed.data;
  p.part_bytes = packed.part_bytes;
  p.parts = packed.parts;
  p.rows = static_cast<int32_t>(g.rows);
  p.y = y;
  p.y_stride = w.rows;
  p.limit = limit;
  GemmConfig config = ChooseGemm(tiles, p.spans, p.parts, g.tokens, epilogue);
  if (g.dispatch != nullptr) {
    p.token_tiles = g.dispatch->tiles;
    p.num_token_tiles = static_cast<int32_t>(g.dispatch->num_tiles);
    p.token_weights = up ? g.dispatch->weight_of_position : nullptr;
  }
  RunGemm(context, w.format, p, config, g.problems);
}

// One expert and few rows: gate and up as two matrices whose inputs are split over warpgroups, side by side in a row of the
// result. Sums in the order of Product's, which keeps rows where they are.
bool GateAndUpAreDeep(const ExpertsParams& p, const Group& g) {
  if (g.dispatch != nullptr) return false;
  const Matrix& w = g.shape.w1;
  const int parts = NumParts(EffectiveActivations(p.activations, w));
  const int64_t tiles = 2 * NumTiles(w.rows);
  return ChooseGemm(tiles, Spans(tiles, NumChunks(w.cols), parts), parts, g.rows, Epilogue::kStore).deep;
}

void GateAndUp(Context& context, const ExpertsParams& p, const Group& g, const float* x, float* y) {
  const Matrix& w = g.shape.w1;
  const PackedInputs packed = PackInputs(context, {.x = x, .x_stride = p.hidden, .rows = g.rows, .cols = p.hidden,
                                                   .activations = EffectiveActivations(p.activations, w)});
  if (packed.data == nullptr) return;
  const int64_t tiles = 2 * NumTiles(w.rows), chunks = NumChunks(w.cols);
  GemmParams gemm;
  gemm.matrices = g.up_down;
  gemm.num_chunks = static_cast<int32_t>(chunks);
  gemm.spans = Spans(tiles, chunks, packed.parts);
  gemm.problem_rows = static_cast<int32_t>(w.rows);
  gemm.inputs = packed.data;
  gemm.part_bytes = packed.part_bytes;
  gemm.parts = packed.parts;
  gemm.rows = static_cast<int32_t>(g.rows);
  gemm.y = y;
  gemm.y_stride = 2 * w.rows;
  gemm.problem_y = w.rows;
  RunGemm(context, w.format, gemm, ChooseGemm(tiles, gemm.spans, gemm.parts, g.rows, Epilogue::kStore), 2);
}

// The outputs of the experts of a group, [g.rows, hidden]; nullptr where memory is short.
float* RunGroup(Context& context, const ExpertsParams& p, const Group& g, const float* x) {
  const int64_t inter = g.shape.w1.rows;
  const bool deep = GateAndUpAreDeep(p, g);
  auto* inner = context.Take<float>(g.rows * inter * (deep ? 2 : 1));
  auto* outer = context.Take<float>(g.rows * p.hidden);
  if (inner == nullptr || outer == nullptr) return nullptr;
  const int32_t* map = g.dispatch == nullptr ? nullptr : g.dispatch->row_of_position;
  if (deep) {
    GateAndUp(context, p, g, x, inner);
  } else {
    Product(context, g, g.shape.w1,
            {.x = x, .x_stride = p.hidden, .rows = g.rows, .cols = p.hidden, .row_map = map,
             .activations = EffectiveActivations(p.activations, g.shape.w1)},
            Epilogue::kSwiGlu, p.limit, inner);
  }
  Product(context, g, g.shape.w2,
          {.x = inner, .x_stride = inter * (deep ? 2 : 1), .rows = g.rows, .cols = inter, .row_map = map, .keep_rows = true,
           .activations = EffectiveActivations(p.activations, g.shape.w2), .gated = deep, .limit = p.limit},
          Epilogue::kStore, 0.0f, outer);
  return outer;
}

// Tokens of a wgmma for the routed experts: both products take the same token tiles.
int TileTokens(const ExpertsParams& p, int64_t tokens) {
  const int parts = NumParts(EffectiveActivations(p.activations, p.experts[0].w1));
  const auto choose = [&](const Matrix& w, int64_t matrices, Epilogue epilogue) {
    const int64_t tiles = NumTiles(w.rows) * matrices * p.num_experts;
    return ChooseGemm(tiles, Spans(tiles, NumChunks(w.cols), parts), parts, tokens, epilogue).tokens;
  };
  return std::min(choose(p.experts[0].w1, 2, Epilogue::kSwiGlu), choose(p.experts[0].w2, 1, Epilogue::kStore));
}

void RunPass(Context& context, const ExpertsParams& p) {
  CombineParams combine{.rows = p.rows, .topk = p.topk, .hidden = p.hidden, .y = p.y};
  Group routed{.shape = p.experts[0], .problems = static_cast<int>(p.num_experts)};
  routed.up_down = AddressTable(context, p.experts, p.num_experts);
  // Twice the mean, so that few experts need a second tile.
  const int64_t tokens = std::min(p.rows, 2 * p.rows * p.topk / p.num_experts);
  const int tile_tokens = TileTokens(p, tokens);
  const Dispatch dispatch = MakeDispatch(context, {.rows = p.rows, .topk = p.topk, .num_experts = p.num_experts,
                                                   .tile_tokens = tile_tokens, .chosen = p.chosen, .weights = p.weights});
  if (routed.up_down == nullptr || !dispatch.ok) return;
  routed.rows = dispatch.positions;
  routed.dispatch = &dispatch;
  routed.tokens = tile_tokens;
  combine.outputs = RunGroup(context, p, routed, p.x);
  combine.position_of_slot = dispatch.position_of_slot;
  if (combine.outputs == nullptr) return;
  if (p.has_shared) {
    Group shared{.shape = p.shared, .rows = p.rows, .tokens = p.rows};
    shared.up_down = AddressTable(context, &p.shared, 1);
    if (shared.up_down == nullptr) return;
    combine.shared = RunGroup(context, p, shared, p.x);
    if (combine.shared == nullptr) return;
  }
  Combine(context, combine);
}

}  // namespace

void Experts(Context& context, const ExpertsParams& params) {
  DI_CHECK(params.num_experts >= 1 && IsPacked(params.experts[0].w1.format) && IsPacked(params.experts[0].w2.format));
  DI_CHECK(!params.has_shared || (IsPacked(params.shared.w1.format) && IsPacked(params.shared.w2.format)));
  for (int64_t begin = 0; begin < params.rows; begin += kRowsPerPass) {
    if (begin > 0) context.BeginOp();
    ExpertsParams p = params;
    p.rows = std::min(kRowsPerPass, params.rows - begin);
    p.x += begin * p.hidden;
    p.chosen += begin * p.topk;
    p.weights += begin * p.topk;
    p.y += begin * p.hidden;
    RunPass(context, p);
  }
}

}  // namespace deepinfer::backend::cuda
