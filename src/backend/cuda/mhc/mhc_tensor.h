// SPDX-License-Identifier: Apache-2.0
// The products of a site's mixes on the tensor cores, for four streams; anything else takes the plain kernel (mhc.cu).
//
// Accumulation contract: input and weight are split into two TF32 parts whose sum is worth 22 bits; an output is high x high
// in one accumulator, high x low and low x high in another, over a group of 16 channels, of them the streams in order. Both are
// added, then groups in ascending order to slices of ten, then slices. So are the square sums, which four lanes share.
#pragma once

#include "backend/api/ops.h"
#include "backend/cuda/context.h"

namespace deepinfer::backend::cuda {

inline constexpr int kHcStreams = 4;
inline constexpr int kHcOutputs = (2 + kHcStreams) * kHcStreams;
// What a slice gives for a row: the outputs, the row's square sum, and that of the collapsed row.
inline constexpr int kHcPartial = kHcOutputs + 2;

bool TensorMixTakes(const HcMixParams& p);
int TensorMixSlices(const HcMixParams& p);

// An expansion whose y is the sum, ascending, of so many spans, `stride` apart.
struct ExpandOfSpans {
  HcExpandParams expand;
  int spans = 1;
  int64_t stride = 0;
};

// Few rows. partial [rows, slices, kHcPartial]; collapsed gets the collapsed rows before their norm. expand: before that, of the same
// rows; nullptr: not.
void TensorMix(Context& context, const HcMixParams& p, const ExpandOfSpans* expand, float* partial);

// Many rows: all of HcMix or, with expand, HcExpandMix. Which one runs does not show in a row's bits. More rows than there are words for
// in Context::marks take the kernels of few rows.
bool ManyMixTakes(Context& context, const HcMixParams& p, bool expands);
void ManyMix(Context& context, const HcMixParams& p, const HcExpandParams* expand);

}  // namespace deepinfer::backend::cuda
