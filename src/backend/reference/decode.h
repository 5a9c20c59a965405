// SPDX-License-Identifier: Apache-2.0
// Reading what the ops are given, one value or row at a time, as float64: weights in every format, activations as the
// setting rounds them, and the rows of the caches.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/api/ops.h"

namespace deepinfer::backend::reference {

using Row = std::vector<double>;

// out[0 .. m.cols) = row `row` of m.
void DecodeRow(const Matrix& m, int64_t row, double* out);

// out[0 .. n) = x after the rounding of `activations` before the matrix `w`.
void RoundActivations(Activations activations, const Matrix& w, const float* x, int64_t n, double* out);

// Address of the codes and scales of window position `position`.
struct WindowRow {
  uint8_t* codes;   // [dim]
  uint8_t* scales;  // [dim / 32]
};
WindowRow FindWindowRow(const WindowCache& cache, int32_t request, int64_t position);
void DecodeWindowRow(const WindowCache& cache, int32_t request, int64_t position, double* out);

// Addresses of latent `index`.
struct GlobalRow {
  uint8_t* latent_codes;   // [dim / 2]
  uint8_t* latent_scales;  // [dim / 16], e4m3
  uint8_t* index_codes;    // [index_dim / 2]
  uint8_t* index_scales;   // [index_dim / 32], e8m0
};
GlobalRow FindGlobalRow(const GlobalCache& cache, int32_t request, int64_t index);
void DecodeLatent(const GlobalCache& cache, int32_t request, int64_t index, double* out);
void DecodeIndexKey(const GlobalCache& cache, int32_t request, int64_t index, double* out);

// 1 / sqrt(mean(x^2) + eps).
template <typename T>
double InverseRms(const T* x, int64_t n, double eps);

// Turns pairs (2i, 2i + 1) of the last rope_dim of `dim` values; table: cos, sin per pair. inverse: the other way.
template <typename T>
void Rotate(T* x, int64_t dim, int64_t rope_dim, const float* table, bool inverse = false);

}  // namespace deepinfer::backend::reference
