// SPDX-License-Identifier: Apache-2.0
// The experts (spec/model.md 5) as grouped matrix products: slots sorted by expert, gate and up with SwiGLU and the
// routing weight in one kernel, down, and a sum over each row's choices in ascending order, the shared expert last.
#include <algorithm>
#include <utility>
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
  int tile_tokens = 0;                       // of the dispatch
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

// The shape of a product of the group with `matrices` matrices like w of each problem.
GemmShape ShapeOf(const Group& g, const Matrix& w, int matrices, int parts) {
  return {.tiles = NumTiles(w.rows) * matrices * g.problems, .num_chunks = NumChunks(w.cols), .rows = g.rows, .parts = parts,
          .format = w.format, .can_split = g.dispatch == nullptr};
}

// The products of packed inputs with the matrices like w of each problem: down, or gate and up. p says what to do with them; their
// place is found here, unless packed_y is one.
SpanSums Product(Context& context, const Group& g, const Matrix& w, int matrices, const PackedInputs& inputs, GemmParams p) {
  const GemmShape shape = ShapeOf(g, w, matrices, inputs.parts);
  p.matrices = g.up_down + (matrices == 2 ? 0 : 2 * g.problems);
  p.problem_matrices = matrices;
  p.num_chunks = static_cast<int32_t>(shape.num_chunks);
  p.problem_rows = static_cast<int32_t>(w.rows);
  p.inputs = inputs.data;
  p.part_bytes = inputs.part_bytes;
  p.parts = inputs.parts;
  p.rows = static_cast<int32_t>(g.rows);
  if (g.dispatch == nullptr && p.packed_y == nullptr && p.epilogue == Epilogue::kStore) return RunGemmApart(context, shape, p);
  if (p.packed_y == nullptr) {
    p.y_stride = w.rows * (p.epilogue == Epilogue::kSwiGlu ? 1 : matrices);
    p.y = context.Take<float>(g.rows * p.y_stride);
    if (p.y == nullptr) return {};
  }
  const SpanSums whole{.data = p.y, .row_stride = p.y_stride};
  if (g.dispatch == nullptr) {
    RunGemm(context, shape, p);
    return whole;
  }
  p.token_weights = g.dispatch->weight_of_position;
  p.token_tiles = g.dispatch->tiles;
  p.num_token_tiles = static_cast<int32_t>(g.dispatch->num_tiles);
  RunGroupedGemm(context, shape, p, g.tile_tokens);
  if (g.dispatch->num_rest == 0) return whole;
  p.token_tiles = g.dispatch->rest;
  p.num_token_tiles = static_cast<int32_t>(g.dispatch->num_rest);
  RunGroupedGemm(context, shape, p, kTokensFew);
  return whole;
}

// The inputs of the last product: silu(gate) * up of each position. They are joined where gate and up are summed if one span has
// a whole sum, else when they are packed: which of the two is a matter of the model's shapes and the activation type.
PackedInputs GateAndUp(Context& context, const ExpertsParams& p, const Group& g, const float* x) {
  const Matrix& w1 = g.shape.w1;
  const int64_t inter = w1.rows;
  const Activations activations = EffectiveActivations(p.activations, w1), next = EffectiveActivations(p.activations, g.shape.w2);
  const int32_t* map = g.dispatch == nullptr ? nullptr : g.dispatch->row_of_position;
  const float* weights = g.dispatch == nullptr ? nullptr : g.dispatch->weight_of_position;
  const PackedInputs inputs = PackInputs(context, {.x = x, .x_stride = p.hidden, .rows = g.rows, .cols = p.hidden, .row_map = map,
                                                   .activations = activations});
  if (inputs.data == nullptr) return {};
  const GemmShape shape = ShapeOf(g, w1, 2, inputs.parts);
  const bool joined = inputs.parts == 1 && Spans(shape.tiles, shape.num_chunks, inputs.parts) == 1;
  GemmParams gemm{.epilogue = joined ? Epilogue::kSwiGlu : Epilogue::kStore, .limit = p.limit};
  if (joined && next == Activations::kBf16 && inter % kChunkCols == 0) {
    const PackedInputs inner = RoomForInputs(context, g.rows, NumChunks(inter), next);
    if (inner.data == nullptr) return {};
    gemm.packed_y = inner.data;
    gemm.packed_y_groups = inner.part_bytes / kAtomBytes;
    Product(context, g, w1, 2, inputs, gemm);
    return inner;
  }
  const SpanSums sums = Product(context, g, w1, 2, inputs, gemm);
  if (sums.data == nullptr) return {};
  return PackInputs(context, {.x = sums.data, .x_stride = sums.row_stride, .spans = sums.spans, .span_stride = sums.span_stride,
                              .rows = g.rows, .cols = inter, .row_map = map, .keep_rows = true, .activations = next,
                              .gated = !joined, .row_weights = weights, .limit = p.limit});
}

// The outputs of the experts of a group, [g.rows, hidden].
SpanSums RunGroup(Context& context, const ExpertsParams& p, const Group& g, const float* x) {
  const PackedInputs inner = GateAndUp(context, p, g, x);
  if (inner.data == nullptr) return {};
  return Product(context, g, g.shape.w2, 1, inner, {});
}

// Sets what the sum takes of the routed experts; false where memory is short.
bool RunRouted(Context& context, const ExpertsParams& p, CombineParams& combine) {
  Group routed{.shape = p.experts[0], .problems = static_cast<int>(p.num_experts)};
  routed.up_down = AddressTable(context, p.experts, p.num_experts);
  // Twice the mean, so that few experts need a second tile; a tile is multiplied no wider than its tokens. Beyond that full tiles.
  const int64_t mean = p.rows * p.topk / p.num_experts;
  int tile_tokens = mean <= kTokensFew / 4 ? kTokensFewest : mean <= kTokensFew / 2 ? kTokensFew : kTokensWide;
  for (const auto& [w, matrices] : {std::pair{&p.experts[0].w1, 2}, std::pair{&p.experts[0].w2, 1}}) {
    const int parts = NumParts(EffectiveActivations(p.activations, *w));
    const GemmShape shape = ShapeOf(routed, *w, matrices, parts);
    tile_tokens = std::min(tile_tokens, TileTokensMax(parts, Spans(shape.tiles, shape.num_chunks, parts) > 1));
  }
  const int rest_tokens = tile_tokens == kTokensWide ? kTokensFew : 0;
  const Dispatch dispatch = MakeDispatch(context, {.rows = p.rows, .topk = p.topk, .num_experts = p.num_experts,
                                                   .tile_tokens = tile_tokens, .rest_tokens = rest_tokens,
                                                   .chosen = p.chosen, .weights = p.weights});
  if (routed.up_down == nullptr || !dispatch.ok) return false;
  routed.rows = dispatch.positions;
  routed.dispatch = &dispatch;
  routed.tile_tokens = tile_tokens;
  combine.outputs = RunGroup(context, p, routed, p.x).data;
  combine.position_of_slot = dispatch.position_of_slot;
  return combine.outputs != nullptr;
}

void RunPass(Context& context, const ExpertsParams& p) {
  CombineParams combine{.rows = p.rows, .topk = p.topk, .hidden = p.hidden, .shared = p.last, .y = p.y};
  if (p.topk > 0 && !RunRouted(context, p, combine)) return;
  if (p.has_shared) {
    Group shared{.shape = p.shared, .rows = p.rows};
    shared.up_down = AddressTable(context, &p.shared, 1);
    if (shared.up_down == nullptr) return;
    const SpanSums sums = RunGroup(context, p, shared, p.x);
    if (sums.data == nullptr) return;
    combine.shared = sums.data;
    combine.shared_spans = sums.spans;
  }
  Combine(context, combine);
}

}  // namespace

void Experts(Context& context, const ExpertsParams& params) {
  DI_CHECK(params.topk == 0 ||
           (params.num_experts >= 1 && IsPacked(params.experts[0].w1.format) && IsPacked(params.experts[0].w2.format)));
  DI_CHECK((params.topk > 0 || params.has_shared) && !(params.has_shared && params.last != nullptr));
  DI_CHECK(!params.has_shared || (IsPacked(params.shared.w1.format) && IsPacked(params.shared.w2.format)));
  for (int64_t begin = 0; begin < params.rows; begin += kRowsPerPass) {
    if (begin > 0) context.BeginOp();
    ExpertsParams p = params;
    p.rows = std::min(kRowsPerPass, params.rows - begin);
    p.x += begin * p.hidden;
    p.chosen += begin * p.topk;
    p.weights += begin * p.topk;
    p.y += begin * p.hidden;
    if (p.last != nullptr) p.last += begin * p.hidden;
    RunPass(context, p);
  }
}

}  // namespace deepinfer::backend::cuda
