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
constexpr int64_t PanelFloats(int64_t cols) { return (cols + 31) / 32 * 128; }

// Keys and values of attention, decoded: [size / 4, rounded up][dim / 16][4][16], zeros behind the last.
struct KeyPanels {
  const float* data;
  int64_t size;
};
constexpr int64_t KeyPanelFloats(int64_t keys, int64_t dim) { return (keys + 3) / 4 * 4 * dim; }

// One row of attention for a run of heads. Keys in the order of the sum: those of `window` from window_begin to
// window_end, then the latents.
struct AttendArgs {
  int64_t heads;
  int64_t dim;
  int64_t rope_dim;
  KeyPanels window;
  int64_t window_begin;
  int64_t window_end;
  KeyPanels latents;
  const float* const* q;    // [heads] -> [dim]
  const float* sink;        // [heads]
  const float* table;       // [rope_dim / 2, 2]
  float scale;
  float* const* scores;     // scratch, [heads] -> [window.size + latents.size + 16]
  float* const* out;        // [heads] -> [dim]
};

// Scores of keys for one row: sum over heads, ascending, of weights[h] * relu(q_h . k), times score_scale; a dot product
// adds its terms in the order of the channels.
struct IndexScoreArgs {
  int64_t heads;
  int64_t dim;
  int64_t keys;
  const float* columns;  // [keys / 16, rounded up][dim][16], by index_columns
  const float* q;        // [heads, dim]
  const float* weights;  // [heads]
  float score_scale;
  float* scores;         // out [keys]
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
  // Rows of the window cache (e4m3, an e8m0 scale per 32) or latents (e2m1 pairs, an e4m3 scale per 16) to panels.
  void (*window_panels)(const uint8_t* const* codes, const uint8_t* const* scales, int64_t n, int64_t dim, float* panels);
  void (*latent_panels)(const uint8_t* const* codes, const uint8_t* const* scales, int64_t n, int64_t dim, float* panels);
  void (*attend)(const AttendArgs& args);
  // 1 to 16 index keys as columns [dim][16]; what lies behind the n-th is undefined.
  void (*index_columns)(const uint8_t* const* codes, const uint8_t* const* scales, int64_t n, int64_t dim, float* columns);
  void (*index_scores)(const IndexScoreArgs& args);
  // Of the two, see select-inl.h; select.h is how to use them.
  int64_t (*append_above)(const float* scores, const int32_t* items, int64_t n, float floor, uint32_t* orders, int32_t* to);
  int64_t (*keep_best)(uint32_t* orders, int32_t* items, int64_t n, int64_t k, float* floor);
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
