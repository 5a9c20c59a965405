// SPDX-License-Identifier: Apache-2.0
// What the files of the forward pass share: the scratch memory of a step and the sublayers that work on it.
//   forward.cc    the order of the layers, embedding and head
//   scratch.cc    allocation
//   recorded.cc   steps whose ops are recorded
//   attention.cc  window KV, compressor, indexer, attention
//   sublayers.cc  hyper-connections, Engram, experts
#pragma once

#include <map>
#include <vector>

#include "model/deepseek_v41/forward.h"
#include "model/deepseek_v41/recorded_ops.h"
#include "model/deepseek_v41/row_set.h"
#include "model/deepseek_v41/step_tables.h"

namespace deepinfer::model::deepseek_v41 {

using backend::Activations;
using backend::Buffer;

inline constexpr int64_t kFloat = sizeof(float);

// The latents that a KV source completes in this step, on host and device.
struct LatentList {
  std::vector<int32_t> last_row, index, requests, positions;
  Buffer device_last_row, device_index, device_requests, device_positions;
};

// The same as an op reads them.
struct LatentTable {
  int64_t count = 0;
  const int32_t *last_row = nullptr, *index = nullptr, *requests = nullptr, *positions = nullptr;
};

// Where the tables of a step lie that went to the device in one piece; nullptr: they did not.
struct TabledStep {
  const int32_t *ids = nullptr, *engram_tokens = nullptr, *ends = nullptr, *final_index = nullptr;
  const uint8_t* dead = nullptr;
  const float* pre = nullptr;
  std::vector<const int32_t*> floors;  // [num_layers]
  std::vector<LatentTable> latents;    // [kv_sources]
};

struct Recorded {
  Caches caches;  // that the ops read and write
  RecordedOps ops;
  const float* taps = nullptr;
};

struct Model::Impl {
  const checkpoint::ModelConfig& config;
  const Weights& weights;
  backend::Backend& dev;
  ModelOptions options;

  // Per-row arrays that live across sublayers and shrink with the rows.
  RowSet rows;
  RowArray streams, input, pre, attn_pre, post, comb;
  RowArray rope_plain, rope_yarn;
  RowArray selected, selected_count, blocks, block_count;
  RowArray floors, dead, engram_tokens;
  RowArray draft_taps;  // shrinks until the last target layer
  std::vector<RowArray*> live;  // those of these that the rest of the pass reads
  // Scratch within a sublayer.
  Buffer qr, q, kv, attended, grouped, sublayer, index_q, index_weights, gate, latent, latent_rope, index_key;
  Buffer experts, expert_weights, engram_rows, engram_values, engram_kv, ids, use_embeds;
  Buffer final_index, final_streams, final_pre, final_hidden, logits;
  Buffer block_ends, states;  // with options.draft_block
  Buffer shared_expert;       // with recorded steps
  // input, qr and grouped as the linears behind them read them, where the backend lays inputs out.
  Buffer laid_input, laid_qr, laid_grouped;
  int64_t laid_input_rows = 0;  // 0: not laid out
  Activations laid_input_as = Activations::kFp32;
  LatentList latents;
  std::vector<int32_t> host_floors, host_ends, host_final, tapped_rows;
  std::vector<uint8_t> host_dead;
  std::vector<float> host_pre;
  const float* tapped_values = nullptr;
  int64_t first_tap = 0;  // those before it are padding
  int64_t first_logit_row = 0;  // of the logits and states: those before it are padding
  StepTables tables;
  TabledStep tabled;
  Buffer zero;  // one int32
  std::map<int64_t, Recorded> recordings;  // by number of rows
  int64_t scratch_bytes = 0;

  Impl(const checkpoint::ModelConfig& c, const Weights& w, backend::Backend& b, const ModelOptions& o)
      : config(c), weights(w), dev(b), options(o) {}

  Status Allocate();
  Status AllocateRowArrays();

  void ListLiveArrays();
  void Begin(const Step& step);
  void UploadStep(const Step& step);
  float* RunLayers(const Step& step, const Caches& caches, const TapFn& tap);

  // Whether ops that do not need each other may run at once: in steps whose rows stay and whose tables are on the device.
  bool branches() const { return tabled.ids != nullptr; }
  void BeginBranch() {
    if (branches()) dev.BeginBranch();
  }
  void EndBranch() {
    if (branches()) dev.EndBranch();
  }
  void JoinBranch() {
    if (branches()) dev.JoinBranch();
  }

  int64_t RecordedRowsMax() const;
  // Rows of the recording that a step takes; 0: it cannot be recorded.
  int64_t RecordedRows(const Step& step, const TapFn& tap) const;
  int64_t TablesBytes() const;
  template <typename List>
  auto AddTable(const List& values) {
    return tables.Add(std::span(values));
  }
  void SetTables(const Step& step, int64_t pad);
  LatentTable TabledLatents(const Step& step, int32_t ratio);
  void ListFloors(const Step& step, int64_t layer);
  void TakeTables();
  float* RunTabled(const Step& step, const Caches& caches, int64_t n);
  void LookUpEngram(const EngramWeights& w, int64_t layer, const TapFn& tap);
  void Engram(const EngramWeights& w, int64_t layer, const TapFn& tap);
  // The mixes of a site; `reader`: a matrix that reads the collapsed rows.
  backend::HcMixParams MixOf(const HcWeights& w, const Vector& norm, const RowArray& collapse, const RowArray& new_pre,
                             const Matrix& reader);
  backend::HcExpandParams ExpandOf() const;
  // Whether a layer reads the streams before its first mixes.
  bool ReadsStreams(int64_t layer, const TapFn& tap) const;
  bool LaysQr(int64_t layer, int64_t n) const;
  // What the backend lays out of a largest step, in any layer; and whether in all layers, so that nobody needs the rows.
  struct LaidRows {
    int64_t input_bytes = 0, qr_bytes = 0, grouped_bytes = 0;
    bool all_of_qr = true, all_of_grouped = true;
  };
  LaidRows FindLaidRows() const;
  void MakeQr(const AttentionWeights& w, void* inputs);
  void ProjectAttended(int64_t layer, const void* inputs);
  void Attend(int64_t layer, const Step& step, const Caches& caches, const TapFn& tap);
  void StoreKv(int64_t layer, const Step& step, const Caches& caches);
  void StoreLatents(int64_t layer, const Step& step, const Caches& caches);
  LatentTable ListLatents(const Step& step, int32_t ratio);
  void Select(int64_t layer, const Caches& caches, const TapFn& tap);
  void Moe(int64_t layer, const TapFn& tap);
  void TakeDraftTaps(int64_t layer, const TapFn& tap);
  void Collapse(int64_t n);
  const int32_t* ListFinal(std::span<const int32_t> wanted_rows);
  float* Head(const int32_t* index);
  float* Finish(const Step& step);

  Activations ActivationsOf(const Matrix& w) const { return EffectiveActivations(options.activations, w); }
  // Where attention leaves it as the backend's linear reads it; 0: as rows.
  int64_t AttendedInputBytes(const Matrix& wo_a, int64_t n) const {
    return dev.input_bytes(wo_a, config.o_groups, BeforeWoA(options.activations), n);
  }
  // Bytes of the inputs of w as the backend lays them out; 0: it reads rows.
  int64_t LaidBytes(const Matrix& w, int64_t n) const { return dev.input_bytes(w, 1, ActivationsOf(w), n); }
  bool Lays(const Matrix& w) const { return LaidBytes(w, rows.size()) > 0; }
  // Of the rows of `input` that run, or nullptr where w reads rows, or inputs that are rounded otherwise.
  const void* LaidInput(const Matrix& w) const {
    return laid_input_rows == rows.size() && laid_input_as == ActivationsOf(w) && Lays(w) ? laid_input.data() : nullptr;
  }
  // inputs: in place of x, or nullptr.
  backend::LinearParams LinearOf(const Matrix& w, const float* x, const void* inputs, float* y, Activations activations) const;
  void Linear(const Matrix& w, const float* x, const void* inputs, float* y, Activations activations);
  void Tapped(const TapFn& tap, Tap what, int64_t layer, const void* data, int64_t row_bytes) const {
    if (tap) tap(what, layer, rows.rows(), data, row_bytes);
  }
  size_t SourceIndex(int64_t layer) const;
};

}  // namespace deepinfer::model::deepseek_v41
