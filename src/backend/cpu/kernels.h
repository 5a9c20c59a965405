// SPDX-License-Identifier: Apache-2.0
// The kernels of one instruction set behind a table of functions. cpu_backend.cc picks a table once; the ops (linear.cc,
// attention.cc, ...) cut their work into pieces for the threads and call through it. Kernels run on one thread, allocate
// nothing and check nothing.
//
// Sums over a row keep to one order per weight format (docs/kernels/cpu.md): sixteen lanes with fixed columns each, one
// FMA a term, joined (l, l + 8), (l, l + 4), (l, l + 2), (l, l + 1). Every kernel of a product gives these bits, whatever
// the number of rows.
#pragma once

#include <cstdint>

#include "backend/api/types.h"

namespace deepinfer::backend::cpu {

// y[r][o - y_begin] = x[r] . w[o] for outputs o of [out_begin, out_end).
struct DotArgs {
  const Matrix* w;
  int64_t out_begin;
  int64_t out_end;
  int64_t rows;
  const float* const* x;  // [rows] -> [cols rounded up to 32], as order_columns left it
  float* const* y;        // [rows]
  int64_t y_begin;
  float* panel;           // scratch, PanelFloats(cols)
};

// Scratch of a panel of four weight rows.
static inline int64_t PanelFloats(int64_t cols) { return (cols + 31) / 32 * 128; }

// One row of attention for a run of heads; keys in the order of the sum.
struct AttendArgs {
  int64_t heads;
  int64_t dim;
  int64_t rope_dim;
  int64_t window_keys;             // the first so many are e4m3 with e8m0 scales per 32, the rest e2m1 with e4m3 per 16
  int64_t keys;
  const uint8_t* const* codes;     // [keys]
  const uint8_t* const* scales;    // [keys]
  const float* const* q;           // [heads] -> [dim]
  const float* sink;               // [heads]
  const float* table;              // [rope_dim / 2, 2]
  float scale;
  float* const* scores;            // scratch, [heads] -> [keys rounded up to 16]
  float* panels;                   // scratch, (keys rounded up to 4) * dim
  float* const* out;               // [heads] -> [dim]
};

// Scores of keys for one row: sum over heads of weight[h] * relu(q[h] . k), times score_scale.
struct IndexScoreArgs {
  int64_t heads;
  int64_t dim;
  int64_t keys;
  const uint8_t* const* codes;   // [keys]
  const uint8_t* const* scales;  // [keys]
  const float* const* q;         // [heads] -> [dim]
  const float* weights;          // [heads]
  float score_scale;
  float* panel;                  // scratch, PanelFloats(dim)
  float* const* dots;            // scratch, [heads] -> [4]
  float* scores;                 // out [keys]
};

// Streams of a hyper-connection.
constexpr int kStreamsMax = 16;

struct HcRowArgs {
  int64_t streams;
  int64_t hidden;
  const float* x;            // [streams, hidden]
  const float* weights;      // [streams]
  const float* norm_weight;  // [hidden]
  float eps;
  float* out;                // [hidden]
};

struct Kernels {
  const char* name;
  void (*dot)(const DotArgs& args);
  // out[0 .. cols) = row `row` of w.
  void (*decode_row)(const Matrix& w, int64_t row, float* out);
  // x in the column order of products with w, filled up with zeros to a multiple of 32; out may be x.
  void (*order_columns)(const Matrix& w, const float* x, int64_t n, float* out);
  void (*round_bf16)(const float* x, int64_t n, float* out);
  float (*sum_of_squares)(const float* x, int64_t n);
  // y = x / sqrt(mean(x^2) + eps) * weight; y may be x.
  void (*rms_norm)(const float* x, const float* weight, float eps, int64_t n, float* y);
  void (*rope)(float* x, int64_t dim, int64_t rope_dim, const float* table);
  void (*attend)(const AttendArgs& args);
  void (*index_scores)(const IndexScoreArgs& args);
  // h = weight * silu(min(g, limit)) * clamp(u, -limit, limit)
  void (*swiglu)(const float* g, const float* u, float weight, float limit, int64_t n, float* h);
  // In place: x = sqrt(log(1 + e^x)).
  void (*sqrt_softplus)(float* x, int64_t n);
  void (*sigmoid)(float* x, int64_t n);
  // comb [streams, streams] of rows that lie `stride` floats apart, in place (spec/model.md 2).
  void (*sinkhorn)(float* comb, int64_t rows, int64_t stride, int64_t streams, float eps, int iters);
  void (*hc_collapse)(const HcRowArgs& args);
  // x [streams, hidden] in place.
  void (*hc_expand)(const float* y, const float* post, const float* comb, int64_t streams, int64_t hidden, float* x);
  // sums: x * w * key, x^2, key^2.
  void (*engram_sums)(const float* x, const float* w, const float* key, int64_t n, float* sums);
  // x += gate * value
  void (*add_scaled)(const float* value, float gate, int64_t n, float* x);
  // out = per channel, the softmax of the gates over `tokens` rows times kv.
  void (*pool)(const float* const* kv, const float* const* gate, int32_t tokens, int64_t n, float* out);
};

extern const Kernels kAvx512Kernels;
extern const Kernels kAvx2Kernels;
extern const Kernels kPortableKernels;

}  // namespace deepinfer::backend::cpu
