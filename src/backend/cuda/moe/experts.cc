// SPDX-License-Identifier: Apache-2.0
// The experts (spec/model.md 5) as grouped matrix products: slots sorted by expert, gate and up with SwiGLU and the
// routing weight in one kernel, down, and a sum over each row's choices in ascending order, the shared expert last.
#include <algorithm>
#include <utility>
#include <vector>

#include "backend/cuda/launch.h"
#include "backend/cuda/linear/aligned_inputs.h"
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
  return {.tiles = NumTiles(w.rows) * matrices * g.problems, .num_chunks = NumChunks(w.format, w.cols), .rows = g.rows, .parts = parts,
          .format = w.format, .can_split = g.dispatch == nullptr};
}

// One of a group's two products: its shape, and what the matrix kernel is told about it.
struct Product {
  GemmShape shape;
  GemmParams params;
};

// The product of packed inputs with `matrices` matrices like w of each problem: gate and up, or down.
Product Describe(const Group& g, const Matrix& w, int matrices, const PackedInputs& inputs) {
  Product product{.shape = ShapeOf(g, w, matrices, inputs.parts)};
  GemmParams& p = product.params;
  p.matrices = g.up_down + (matrices == 2 ? 0 : 2 * g.problems);
  p.problem_matrices = matrices;
  p.num_chunks = static_cast<int32_t>(product.shape.num_chunks);
  p.problem_rows = static_cast<int32_t>(w.rows);
  p.inputs = inputs.data;
  p.part_bytes = inputs.part_bytes;
  p.parts = inputs.parts;
  p.row_scales = inputs.row_scales;
  p.rows = static_cast<int32_t>(g.rows);
  if (g.dispatch == nullptr) return product;
  p.token_weights = g.dispatch->weight_of_position;
  p.token_tiles = g.dispatch->tiles;
  p.num_token_tiles = static_cast<int32_t>(g.dispatch->num_tiles);
  return product;
}

void Run(Context& context, const Group& g, Product product) {
  if (g.dispatch == nullptr) return RunGemm(context, product.shape, product.params);
  RunGroupedGemm(context, product.shape, product.params, g.tile_tokens);
  if (g.dispatch->num_rest == 0) return;
  product.params.token_tiles = g.dispatch->rest;
  product.params.num_token_tiles = static_cast<int32_t>(g.dispatch->num_rest);
  RunGroupedGemm(context, product.shape, product.params, kTokensFew);
}

// Runs the product, with the results in scratch memory. Those of FP8 products are bf16, half the bytes, as the official engine has
// them, where nothing but a sum or a rounding reads them.
SpanSums RunInScratch(Context& context, const Group& g, Product product) {
  GemmParams& p = product.params;
  if (g.dispatch == nullptr && p.epilogue == Epilogue::kStore) return RunGemmApart(context, product.shape, p);
  p.y_stride = int64_t{p.problem_rows} * (p.epilogue == Epilogue::kSwiGlu ? 1 : p.problem_matrices);
  if (IsAligned(product.shape.format)) {
    p.y_bf16 = context.Take<uint16_t>(g.rows * p.y_stride);
  } else {
    p.y = context.Take<float>(g.rows * p.y_stride);
  }
  if (p.y != nullptr || p.y_bf16 != nullptr) Run(context, g, product);
  return {.data = p.y, .bf16 = p.y_bf16, .row_stride = p.y_stride};
}

// What gate and up of a group read. Aligned inputs that lie there, as the shared expert reads them, are gathered for the routed ones; to
// round bf16 ones again is faster.
PackedInputs InputsOf(Context& context, const ExpertsParams& p, const Group& g, const InputForm& form) {
  const int32_t* map = g.dispatch == nullptr ? nullptr : g.dispatch->row_of_position;
  const int64_t chunks = NumInputChunks(p.hidden, form);
  if (p.inputs != nullptr && (map == nullptr || (form.aligned && IsAligned(p.shared.w1.format)))) {
    const PackedInputs laid = InputsAt(p.inputs, p.rows, chunks, form);
    return map == nullptr ? laid : GatherAlignedInputs(context, laid, chunks, map, g.rows);
  }
  return PackInputs(context, {.x = p.x, .x_stride = p.hidden, .rows = g.rows, .cols = p.hidden, .row_map = map, .form = form});
}

// The outputs of the experts of a group, [g.rows, hidden]; no data where memory is short. The inputs of the last product are
// silu(gate) * up of each position. They are joined where gate and up are summed if one span has a whole sum, else when they are
// packed: which of the two is a matter of the model's shapes and the activation type.
SpanSums RunGroup(Context& context, const ExpertsParams& p, const Group& g) {
  const Matrix &w1 = g.shape.w1, &w2 = g.shape.w2;
  const int64_t inter = w1.rows;
  const InputForm next = FormFor(w2, p.activations);
  const int32_t* map = g.dispatch == nullptr ? nullptr : g.dispatch->row_of_position;
  const PackedInputs inputs = InputsOf(context, p, g, FormFor(w1, p.activations));
  if (inputs.data == nullptr) return {};
  Product up = Describe(g, w1, 2, inputs);
  up.params.limit = p.limit;
  const bool joined = inputs.parts == 1 && Spans(up.shape) == 1;
  if (joined) up.params.epilogue = Epilogue::kSwiGlu;
  if (joined && !IsAligned(w1.format) && next.activations == Activations::kBf16 && inter % kChunkCols == 0) {
    const PackedInputs inner = RoomForInputs(context, g.rows, NumChunks(w2.format, inter), next);
    if (inner.data == nullptr) return {};
    up.params.packed_y = inner.data;
    up.params.packed_y_groups = inner.part_bytes / kAtomBytes;
    Run(context, g, up);
    return RunInScratch(context, g, Describe(g, w2, 1, inner));
  }
  const SpanSums sums = RunInScratch(context, g, up);
  if (sums.data == nullptr && sums.bf16 == nullptr) return {};
  const float* weights = g.dispatch == nullptr ? nullptr : g.dispatch->weight_of_position;
  const PackedInputs inner = PackInputs(context, {.x = sums.data, .x_bf16 = sums.bf16, .x_stride = sums.row_stride, .spans = sums.spans,
                                                  .span_stride = sums.span_stride, .rows = g.rows, .cols = inter, .row_map = map,
                                                  .keep_rows = true, .form = next, .gated = !joined, .row_weights = weights,
                                                  .limit = p.limit});
  if (inner.data == nullptr) return {};
  return RunInScratch(context, g, Describe(g, w2, 1, inner));
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
    tile_tokens = std::min(tile_tokens, TileTokensMax(parts, Spans(ShapeOf(routed, *w, matrices, parts)) > 1));
  }
  const int rest_tokens = tile_tokens == kTokensWide ? kTokensFew : 0;
  const Dispatch dispatch = MakeDispatch(context, {.rows = p.rows, .topk = p.topk, .num_experts = p.num_experts,
                                                   .tile_tokens = tile_tokens, .rest_tokens = rest_tokens,
                                                   .chosen = p.chosen, .weights = p.weights});
  if (routed.up_down == nullptr || !dispatch.ok) return false;
  routed.rows = dispatch.positions;
  routed.dispatch = &dispatch;
  routed.tile_tokens = tile_tokens;
  const SpanSums sums = RunGroup(context, p, routed);
  combine.outputs = sums.data;
  combine.outputs_bf16 = sums.bf16;
  combine.position_of_slot = dispatch.position_of_slot;
  return sums.data != nullptr || sums.bf16 != nullptr;
}

void RunPass(Context& context, const ExpertsParams& p) {
  CombineParams combine{.rows = p.rows, .topk = p.topk, .hidden = p.hidden, .shared = p.last, .y = p.y};
  const bool routed = p.topk == 0 || RunRouted(context, p, combine);
  if (p.joins_last) context.JoinBranch();
  if (!routed) return;
  if (p.has_shared) {
    Group shared{.shape = p.shared, .rows = p.rows};
    shared.up_down = AddressTable(context, &p.shared, 1);
    if (shared.up_down == nullptr) return;
    const SpanSums sums = RunGroup(context, p, shared);
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
  DI_CHECK(params.inputs == nullptr || (params.hidden % kChunkCols == 0 && params.activations != Activations::kFp32));
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
    if (p.rows < params.rows) p.inputs = nullptr;  // laid out for all rows
    p.joins_last = params.joins_last && begin == 0;
    RunPass(context, p);
  }
}

}  // namespace deepinfer::backend::cuda
