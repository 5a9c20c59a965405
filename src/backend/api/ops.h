// SPDX-License-Identifier: Apache-2.0
// The ops of a forward pass: one parameter struct each, plain pointers and shapes.
//
// Conventions. `rows` are the rows of a ragged batch: tokens of many requests, the rows of one request next to each
// other and in ascending position. Shapes stand behind every pointer, last index fastest, no padding unless a stride is
// given. All activations are fp32. Pointers are device pointers. 0 rows are legal and do nothing.
//
// Contract of every op: a row's result depends on that row and on the cache alone, bit for bit: not on the other rows,
// on how many there are, on which kernel ran or on the number of threads. Formulas: spec/model.md (section given).
#pragma once

#include <cstdint>

#include "backend/api/types.h"

namespace deepinfer::backend {

// x[r, s, :] = embedding of token ids[r] in every stream s; rows with use_override take override_rows instead.
struct EmbedParams {
  int64_t rows;
  int64_t streams;
  const int32_t* ids;            // [rows]
  Matrix table;                  // [vocab, hidden]
  const float* override_rows;    // [rows, hidden] or nullptr
  const uint8_t* use_override;   // [rows] or nullptr
  float* x;                      // [rows, streams, hidden]
};

// Hashes the n-grams that end at each row and gathers their table rows (spec/model.md 6, checkpoint.md 6.3).
// Column c = (n - 2) * heads + head; table row = h_n mod prime[c] + offset[c].
struct EngramLookupParams {
  int64_t rows;
  int32_t ngram_max;              // 2..8
  int32_t heads;
  int32_t dim;                    // values of a table row
  const int32_t* tokens;          // [rows, ngram_max]: token i back; -1 = before the start, or at or past a dead token
  const int32_t* compressed_ids;  // [vocab]
  int32_t pad;                    // compressed id that stands for -1
  const int64_t* multipliers;     // [ngram_max]
  const int64_t* primes;          // [(ngram_max - 1) * heads]
  const int64_t* offsets;         // [(ngram_max - 1) * heads]
  Matrix table;                   // [table rows, dim], kFp8Row32 or kBf16
  int64_t* table_rows;            // out [rows, columns]
  float* out;                     // [rows, columns * dim]
};

// x[r, s, :] += gate * value where the row is alive (spec/model.md 6).
struct EngramApplyParams {
  int64_t rows;
  int64_t streams;
  int64_t hidden;
  const float* kv;         // [rows, streams + 1, hidden]: a key for each stream, then the value
  const float* qk_weight;  // [streams, hidden]: q_weight * k_weight
  const uint8_t* dead;     // [rows] or nullptr: gate 0
  float eps;
  float* x;                // [rows, streams, hidden], in place
};

// The mixes of one site and the collapse that feeds its sublayer (spec/model.md 1, 2):
// pre, post, comb from x; collapsed = rms(sum_s collapse[s] * x[s]; norm_weight).
struct HcMixParams {
  int64_t rows;
  int64_t streams;
  int64_t hidden;
  const float* x;            // [rows, streams, hidden]
  Matrix fn;                 // [(2 + streams) * streams, streams * hidden]
  const float* base;         // [(2 + streams) * streams]
  const float* scale;        // [3]
  float norm_eps;
  float hc_eps;
  int32_t sinkhorn_iters;
  const float* collapse;     // [rows, streams]: the previous site's pre
  const float* norm_weight;  // [hidden]
  float* pre;                // out [rows, streams]; may not alias collapse
  float* post;               // out [rows, streams]
  float* comb;               // out [rows, streams, streams], row = source stream
  float* collapsed;          // out [rows, hidden]
  void* inputs = nullptr;    // out, if given: the same as the inputs of a linear (Backend::input_bytes)
  Activations inputs_as = Activations::kBf16;  // what that linear rounds them to
};

// collapsed = rms(sum_s collapse[s] * x[s]; norm_weight): the end of the stack.
struct HcCollapseParams {
  int64_t rows;
  int64_t streams;
  int64_t hidden;
  const float* x;            // [rows, streams, hidden]
  const float* collapse;     // [rows, streams]
  const float* norm_weight;  // [hidden]
  float norm_eps;
  float* collapsed;          // out [rows, hidden]
};

// y = sum_s weights[s] * x[s], without a norm: what the draft model reads of the streams (spec/dspark.md 3.1, 3.5).
struct HcSumParams {
  int64_t rows;
  int64_t streams;
  int64_t hidden;
  const float* x;        // [rows, streams, hidden]
  const float* weights;  // [rows, streams]; nullptr: 1 / streams each
  float* y;              // out [rows, y_stride], the first `hidden` of each
  int64_t y_stride;
};

// x'[k] = post[k] * y + sum_j comb[j, k] * x[j], in place (spec/model.md 2).
struct HcExpandParams {
  int64_t rows;
  int64_t streams;
  int64_t hidden;
  const float* y;     // [rows, hidden]
  const float* post;  // [rows, streams]
  const float* comb;  // [rows, streams, streams]
  float* x;           // [rows, streams, hidden]
};

// y = x w^T. With groups > 1, x and y are cut into `groups` equal runs of columns; run g uses rows
// [g * w.rows / groups, (g + 1) * w.rows / groups) of w, and w.cols is the width of one run.
struct LinearParams {
  int64_t rows;
  Matrix w;
  int64_t groups = 1;
  Activations activations = Activations::kFp32;
  const float* x;    // [rows, x_stride], x_stride >= groups * w.cols
  int64_t x_stride;
  const void* inputs = nullptr;  // in place of x: what another op has rounded and laid out, Backend::input_bytes of it
  float* y;          // [rows, y_stride], y_stride >= w.rows
  int64_t y_stride;
  void* y_inputs = nullptr;  // in place of y: the same as the inputs of another linear
  Activations y_inputs_as = Activations::kBf16;  // what that one rounds them to
};

// y += x, the first `dim` values of each row.
struct AddParams {
  int64_t rows;
  int64_t dim;
  const float* x;  // [rows, x_stride]
  int64_t x_stride;
  float* y;        // [rows, y_stride]
  int64_t y_stride;
};

// y = x / sqrt(mean(x^2) + eps) * weight; y may be x.
struct RmsNormParams {
  int64_t rows;
  int64_t dim;
  const float* x;       // [rows, x_stride]
  int64_t x_stride;
  const float* weight;  // [dim]
  float eps;
  float* y;             // [rows, dim]
  void* inputs = nullptr;  // in place of y: the same as the inputs of a linear (Backend::input_bytes)
  Activations inputs_as = Activations::kBf16;  // what that linear rounds them to
};

// cos and sin of fp32(position) * inv_freq, the product rounded to fp32 (checkpoint.md 5).
struct RopeTableParams {
  int64_t rows;
  int32_t pairs;
  const int32_t* positions;  // [rows]
  const float* inv_freq;     // [pairs]
  float* table;              // out [rows, pairs, 2]: cos, sin
};

// Turns the last rope_dim channels of every head, pairs (2i, 2i + 1), in place; with round_index the whole head then
// goes through the FP4 round trip of index queries.
struct RopeParams {
  int64_t rows;
  int64_t heads;
  int64_t dim;
  int64_t rope_dim;
  const float* table;  // [rows, rope_dim / 2, 2]
  bool round_index = false;
  float* x;            // [rows, heads, dim]
};

// Window KV of one layer: rms, rope, FP8, store at the row's position (spec/model.md 3).
struct StoreWindowParams {
  int64_t rows;
  int64_t rope_dim;
  const float* kv;           // [rows, kv_stride], the first cache.dim of each
  int64_t kv_stride;
  const float* norm_weight;  // [dim]
  float norm_eps;
  const float* table;        // [rows, rope_dim / 2, 2]
  const int32_t* positions;  // [rows]
  const int32_t* requests;   // [rows]
  WindowCache cache;
};

// Latents of a KV source before rope (spec/model.md 3, "Compressed KV"). Latent i pools the `ratio` tokens that end at
// row last_row[i]; tokens before the request's first row of this batch come from the open-group ring, in which position
// p has slot p mod ring. Afterwards the last `ring` rows of each request are put into its ring, so a later batch that
// runs the same positions again simply overwrites them. ratio 1: latent = rms(kv), gate and ring unused.
// A list of latents may have holes: last_row[i] < 0 here, index[i] < 0 in the two ops that store; nothing is written then.
struct CompressParams {
  int64_t rows;
  int64_t latents;
  int32_t ratio;
  int32_t ring;                // slots of a request's ring, >= ratio - 1
  int64_t dim;
  const float* kv;             // [rows, dim]
  const float* gate;           // [rows, dim]; nullptr for ratio 1
  const int32_t* last_row;     // [latents]
  const int32_t* positions;    // [rows]
  const int32_t* requests;     // [rows]
  const int32_t* ring_slots;   // [requests]: the ring of request i begins at state + ring_slots[i] * ring * 2 * dim
  float* state;                // [.., ring, 2, dim]: kv, gate
  const float* norm_weight;    // [dim]
  float norm_eps;
  float* out;                  // [latents, dim]
};

// rope, FP4 with e4m3 scales, store as latent `index[i]` of request requests[i].
struct StoreLatentParams {
  int64_t latents;
  int64_t rope_dim;
  const float* latent;      // [latents, dim]
  const float* table;       // [latents, rope_dim / 2, 2] at positions index * ratio
  const int32_t* index;     // [latents]
  const int32_t* requests;  // [latents]
  GlobalCache cache;
};

// rms, rope, FP4 with e8m0 scales, store as index key of that latent (spec/model.md 4).
struct StoreIndexKeyParams {
  int64_t latents;
  int64_t rope_dim;
  const float* key;          // [latents, index_dim]
  const float* norm_weight;  // [index_dim]
  float norm_eps;
  const float* table;        // [latents, rope_dim / 2, 2]
  const int32_t* index;      // [latents]
  const int32_t* requests;   // [latents]
  GlobalCache cache;
};

enum class Candidates {
  kNone,      // score every visible latent
  kPublish,   // the same, and publish the candidate blocks
  kRestrict,  // score inside the published blocks only
};

// Index scores and the best visible latents of each row (spec/model.md 4): ties go to the lower position (block),
// scores are compared as numbers.
struct IndexSelectParams {
  int64_t rows;
  int64_t heads;
  const float* q;              // [rows, heads, index_dim], after rope and the FP4 round trip
  const float* weights;        // [rows, heads]: weights_proj x
  float weight_scale;          // heads^-0.5, applied to the weights
  float score_scale;           // index_dim^-0.5, applied to the sum
  const int32_t* positions;    // [rows]
  const int32_t* requests;     // [rows]
  GlobalCache cache;
  int64_t topk;
  Candidates candidates = Candidates::kNone;
  int64_t block_size = 0;      // latents per candidate block
  int64_t blocks_max = 0;
  int32_t* blocks = nullptr;       // [rows, blocks_max], ascending; out for kPublish, in for kRestrict
  int32_t* block_count = nullptr;  // [rows]
  int32_t* selected;           // out [rows, topk], ascending; unused places -1
  int32_t* selected_count;     // out [rows]
};

// softmax over window keys, chosen latents and the sink; K = V; the output is turned back by the row's table
// (spec/model.md 3). Keys are summed by ascending position, window first. A row reads the `window` window keys that end
// at positions[r]: at its own position, or, in a draft block, at the block's last one.
struct AttentionParams {
  int64_t rows;
  int64_t heads;
  int64_t dim;
  int64_t rope_dim;
  const float* q;                 // [rows, heads, dim], after rope
  const float* table;             // [rows, rope_dim / 2, 2]
  const int32_t* positions;       // [rows]
  const int32_t* requests;        // [rows]
  int32_t window;                 // keys, the one at positions[r] included
  const int32_t* window_floor;    // [rows]: nothing below this position is read
  WindowCache window_cache;
  bool has_latents = false;
  GlobalCache latent_cache;
  int64_t topk = 0;
  const int32_t* selected = nullptr;        // [rows, topk]
  const int32_t* selected_count = nullptr;  // [rows]
  const float* sink;              // [heads]
  float scale;
  // Other than kFp32: the backend may round queries and softmax weights to bf16 before the products.
  Activations activations = Activations::kFp32;
  float* out;                     // [rows, heads, dim]
  void* inputs = nullptr;         // in place of out: the same as the inputs of a linear, rounded to bf16
};

// The experts of each row and their weights (spec/model.md 5). Ties: the lower expert.
struct RouteParams {
  int64_t rows;
  int64_t topk;
  const float* x;            // [rows, hidden]
  Matrix gate;               // [experts, hidden]
  const float* bias;         // [experts]
  const float* image_bias;   // [experts]: for rows with is_image
  const uint8_t* is_image;   // [rows] or nullptr
  bool normalize;
  float scale;
  int32_t* experts;          // out [rows, topk], ascending
  float* weights;            // out [rows, topk]
};

struct ExpertWeights {
  Matrix w1;  // gate [inter, hidden]
  Matrix w3;  // up   [inter, hidden]
  Matrix w2;  // down [hidden, inter]
};

// y = sum over the chosen experts by ascending id, then the shared expert (spec/model.md 5). topk 0: the shared expert alone, which
// another call may then take as its `last`.
struct ExpertsParams {
  int64_t rows;
  int64_t hidden;
  int64_t topk;
  int64_t num_experts;
  const float* x;                // [rows, hidden]
  const void* inputs = nullptr;  // in place of x where inputs are read laid out: the same as shared.w1 reads them (Backend::input_bytes)
  const int32_t* chosen;         // [rows, topk], ascending
  const float* weights;          // [rows, topk]
  const ExpertWeights* experts;  // host array [num_experts]
  ExpertWeights shared;
  bool has_shared;
  const float* last = nullptr;   // [rows, hidden]: added in the place of the shared expert; nullptr: nothing
  bool joins_last = false;       // a branch makes `last`: the op joins it (Backend::JoinBranch), before it reads that
  float limit;                   // clamp of gate (above) and up (both sides)
  Activations activations;
  float* y;                      // [rows, hidden]
};

// How one token is drawn: the best of logit / temperature + noise, as sampling/sampler.h has it for a request without
// penalties, bias, filters and masks, and with the same bits; the lower id where two are equal, NaN never.
struct SampleDraw {
  uint64_t seed = 0;
  uint32_t position = 0;
  uint32_t choice = 0;
  uint32_t stream = 0;   // the noise stream's word (sampling/noise.h)
  float temperature = 0;  // 0: the best logit
  int32_t logits_row = 0;
};

struct SampleParams {
  int64_t rows;
  int64_t vocab;
  const float* logits;      // [.., vocab]
  const SampleDraw* draws;  // [rows]
  int32_t no_token = -1;    // where no logit is above minus infinity
  int32_t* tokens;          // out [rows]
};

// What penalties and bias make of a token's logit l (sampling/sampler.h): l / repeat where l > 0, else l * repeat; then
// - off, then + bias.
struct LogitEdit {
  int32_t token = 0;
  float repeat = 1;
  float off = 0;
  float bias = 0;
};

// A draw with all that sampling/sampler.h knows, with the same bits. A token is in at most one of the edits, and in at most
// one of the overrides, which stand for its edit.
struct AdjustedDraw {
  SampleDraw draw;
  int32_t first_edit = 0;  // among SampleAdjustedParams::edits
  int32_t num_edits = 0;
  int32_t first_override = 0;
  int32_t num_overrides = 0;
  int32_t mask = -1;  // row of the masks; -1: every token is allowed
  int32_t top_k = 0;  // 0: off
  float top_p = 1;
  float min_p = 0;
};

inline constexpr int64_t kAdjustedVocabMax = int64_t{1} << 19;

struct SampleAdjustedParams {
  int64_t rows;
  int64_t vocab;              // at most kAdjustedVocabMax
  const float* logits;        // [.., vocab]
  const AdjustedDraw* draws;  // [rows]
  const LogitEdit* edits;
  const uint32_t* masks;      // [.., mask_words]: bit t of a row = token t is allowed
  int64_t mask_words;         // at least vocab / 32, rounded up
  int32_t* tokens;            // out [rows]; -1: none is allowed, or no logit is above minus infinity
};

// What log-probabilities are made of (sampling/sampler.h, FinishLogprobs).
inline constexpr int32_t kTopLogitsMax = 32;
struct RowLogits {
  float chosen;  // logit of the token
  float top;     // the highest logit
  double sum;    // of e^(logit - top), in sampling/vocabulary.h's order
  int32_t tokens[kTopLogitsMax];  // the best, in order
  float logits[kTopLogitsMax];
};

struct RowLogitsParams {
  int64_t rows;
  int64_t vocab;
  const float* logits;         // [.., vocab]
  const int32_t* logits_rows;  // [rows]
  const int32_t* tokens;
  const int32_t* token_at;     // [rows]: places in `tokens`; where -1 lies, nothing is written for the row
  const int32_t* best;         // [rows]: how many of the best, at most kTopLogitsMax and vocab
  RowLogits* out;              // [rows]
};

// dst row i = src row index[i].
struct GatherRowsParams {
  int64_t rows;
  int64_t row_bytes;
  const void* src;
  const int32_t* index;  // [rows]
  void* dst;
};

}  // namespace deepinfer::backend
