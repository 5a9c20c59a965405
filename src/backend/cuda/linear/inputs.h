// SPDX-License-Identifier: Apache-2.0
// Packing activations for the matrix kernel: rounding, splitting into bf16 parts, and the layout of input_place.h.
#pragma once

#include "backend/api/types.h"
#include "backend/cuda/context.h"
#include "backend/cuda/linear/packed.h"
#include "core/check.h"

namespace deepinfer::backend::cuda {

// How inputs lie that a matrix reads.
struct InputForm {
  Activations activations = Activations::kFp32;
  bool aligned = false;  // e4m3 relative to the row's scale, for aligned matrices; kFp8
};

// REQUIRES: aligned matrices are read with kFp8.
inline InputForm FormFor(const Matrix& w, Activations activations) {
  DI_CHECK(!IsAligned(w.format) || activations == Activations::kFp8);
  return {.activations = EffectiveActivations(activations, w), .aligned = IsAligned(w.format)};
}
// Of inputs that an op lays out without knowing the matrix.
constexpr InputForm LaidForm(Activations activations) {
  return {.activations = activations, .aligned = activations == Activations::kFp8};
}

struct PackInputsParams {
  const float* x = nullptr;  // [source rows, x_stride]
  const uint16_t* x_bf16 = nullptr;  // the same in bf16, in place of x
  int64_t x_stride = 0;
  int spans = 1;             // a value is the sum, ascending, of so many, span_stride apart
  int64_t span_stride = 0;
  int64_t rows = 0;          // of the result
  int64_t cols = 0;          // of one problem; problem g has columns [g * cols, (g + 1) * cols)
  int64_t problems = 1;
  const int32_t* row_map = nullptr;  // [rows]: source row, -1 for a row of zeros; nullptr: the same row
  bool keep_rows = false;            // row_map only says which rows are zeros
  InputForm form;
  void* into = nullptr;      // the result's place; nullptr: scratch memory
  // The columns are gates, and as many ups follow them: the input is weight * silu(min(gate, limit)) * clamp(up, limit), in the
  // order of operations of Epilogue::kSwiGlu. One problem.
  bool gated = false;
  const float* row_weights = nullptr;  // [rows], read where the row is not padding; nullptr: 1
  float limit = 0.0f;
};

// bf16 parts whose sum is the rounded input.
constexpr int NumParts(Activations activations) { return activations == Activations::kFp32 ? 3 : 1; }

// Chunks of a row of so many inputs.
constexpr int64_t NumInputChunks(int64_t cols, const InputForm& form) {
  return NumChunks(form.aligned ? WeightFormat::kFp8Aligned : WeightFormat::kBf16, cols);
}

struct PackedInputs {
  uint8_t* data = nullptr;  // nullptr: no memory, the error is recorded
  int64_t part_bytes = 0;
  int parts = 1;
  float* row_scales = nullptr;  // aligned: [rows, padded to groups]
};

int64_t PackedInputBytes(int64_t rows, int64_t chunks, const InputForm& form);
// Inputs that lie somewhere.
PackedInputs InputsAt(const void* data, int64_t rows, int64_t chunks, const InputForm& form);
// Both in scratch memory of the current op; the first leaves the contents to the caller.
PackedInputs RoomForInputs(Context& context, int64_t rows, int64_t chunks, const InputForm& form);
PackedInputs PackInputs(Context& context, const PackInputsParams& p);

}  // namespace deepinfer::backend::cuda
