// SPDX-License-Identifier: Apache-2.0
#include "backend/reference/decode.h"

#include <cmath>
#include <cstring>

#include "core/check.h"
#include "numeric/quantize.h"

namespace deepinfer::backend::reference {
namespace {

uint8_t Nibble(const uint8_t* codes, int64_t i) { return static_cast<uint8_t>(codes[i / 2] >> (4 * (i & 1)) & 0xF); }

}  // namespace

void DecodeRow(const Matrix& m, int64_t row, double* out) {
  DI_CHECK(row >= 0 && row < m.rows);
  const auto* data = static_cast<const uint8_t*>(m.data) + static_cast<size_t>(row) * MatrixRowBytes(m);
  for (int64_t i = 0; i < m.cols; ++i) {
    switch (m.format) {
      case WeightFormat::kF32: {
        float value;
        std::memcpy(&value, data + 4 * i, 4);
        out[i] = value;
        break;
      }
      case WeightFormat::kBf16: {
        uint16_t code;
        std::memcpy(&code, data + 2 * i, 2);
        out[i] = numeric::Bf16ToFloat(code);
        break;
      }
      case WeightFormat::kFp8Tile32:
        out[i] = double{numeric::E4m3ToFloat(data[i])} *
                 numeric::E8m0ToFloat(m.scale[(row / 32) * (m.cols / 32) + i / 32]);
        break;
      case WeightFormat::kFp8Row32:
        out[i] = double{numeric::E4m3ToFloat(data[i])} * numeric::E8m0ToFloat(m.scale[row * (m.cols / 32) + i / 32]);
        break;
      case WeightFormat::kFp4Row32:
        out[i] = double{numeric::E2m1ToFloat(Nibble(data, i))} *
                 numeric::E8m0ToFloat(m.scale[row * (m.cols / 32) + i / 32]);
        break;
      case WeightFormat::kFp8Aligned:
      case WeightFormat::kFp4Aligned:
        DI_CHECK(!"a layout of another backend");
    }
  }
}

void RoundActivations(Activations activations, const Matrix& w, const float* x, int64_t n, double* out) {
  std::vector<float> rounded(x, x + n);
  activations = EffectiveActivations(activations, w);
  if (activations == Activations::kBf16) {
    for (float& value : rounded) value = numeric::Bf16ToFloat(numeric::FloatToBf16(value));
  } else if (activations == Activations::kFp8) {
    numeric::RoundTripFp8(rounded.data(), static_cast<int>(n));
  }
  for (int64_t i = 0; i < n; ++i) out[i] = rounded[static_cast<size_t>(i)];
}

WindowRow FindWindowRow(const WindowCache& cache, int32_t request, int64_t position) {
  const int64_t entry = position / kBlockTokens - cache.first_page[request];
  DI_CHECK(entry >= 0 && entry < cache.pages_stride);
  const int64_t page = cache.pages[int64_t{request} * cache.pages_stride + entry];
  const int64_t slot = position % kBlockTokens;
  auto* base = reinterpret_cast<uint8_t*>(cache.base) + page * cache.page_bytes();
  return {base + slot * cache.dim, base + int64_t{kBlockTokens} * cache.dim + slot * (cache.dim / 32)};
}

void DecodeWindowRow(const WindowCache& cache, int32_t request, int64_t position, double* out) {
  const WindowRow row = FindWindowRow(cache, request, position);
  for (int i = 0; i < cache.dim; ++i) {
    out[i] = double{numeric::E4m3ToFloat(row.codes[i])} * numeric::E8m0ToFloat(row.scales[i / 32]);
  }
}

GlobalRow FindGlobalRow(const GlobalCache& cache, int32_t request, int64_t index) {
  const int64_t n = cache.rows_per_block();
  DI_CHECK(index >= 0 && index / n < cache.blocks_stride);
  const int64_t block = cache.blocks[int64_t{request} * cache.blocks_stride + index / n];
  const int64_t row = index % n;
  auto* base = reinterpret_cast<uint8_t*>(cache.base) + block * cache.block_bytes();
  return {base + row * (cache.dim / 2), base + cache.latent_scales_offset() + row * (cache.dim / 16),
          base + cache.index_codes_offset() + row * (cache.index_dim / 2),
          base + cache.index_scales_offset() + row * (cache.index_dim / 32)};
}

void DecodeLatent(const GlobalCache& cache, int32_t request, int64_t index, double* out) {
  const GlobalRow row = FindGlobalRow(cache, request, index);
  for (int i = 0; i < cache.dim; ++i) {
    out[i] = double{numeric::E2m1ToFloat(Nibble(row.latent_codes, i))} * numeric::E4m3ToFloat(row.latent_scales[i / 16]);
  }
}

void DecodeIndexKey(const GlobalCache& cache, int32_t request, int64_t index, double* out) {
  const GlobalRow row = FindGlobalRow(cache, request, index);
  for (int i = 0; i < cache.index_dim; ++i) {
    out[i] = double{numeric::E2m1ToFloat(Nibble(row.index_codes, i))} * numeric::E8m0ToFloat(row.index_scales[i / 32]);
  }
}

template <typename T>
double InverseRms(const T* x, int64_t n, double eps) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += double{x[i]} * double{x[i]};
  return 1.0 / std::sqrt(sum / static_cast<double>(n) + eps);
}
template double InverseRms(const float*, int64_t, double);
template double InverseRms(const double*, int64_t, double);

template <typename T>
void Rotate(T* x, int64_t dim, int64_t rope_dim, const float* table, bool inverse) {
  T* tail = x + dim - rope_dim;
  for (int64_t i = 0; i < rope_dim / 2; ++i) {
    const double c = table[2 * i], s = inverse ? -double{table[2 * i + 1]} : double{table[2 * i + 1]};
    const double a = tail[2 * i], b = tail[2 * i + 1];
    tail[2 * i] = static_cast<T>(a * c - b * s);
    tail[2 * i + 1] = static_cast<T>(a * s + b * c);
  }
}
template void Rotate(float*, int64_t, int64_t, const float*, bool);
template void Rotate(double*, int64_t, int64_t, const float*, bool);

}  // namespace deepinfer::backend::reference
