// SPDX-License-Identifier: Apache-2.0
// The products of a site's mixes on the tensor cores, for four streams; anything else takes the plain kernel (mhc.cu).
//
// Accumulation contract: input and weight are split into two TF32 parts whose sum is worth 22 bits; an output is high x high
// in one accumulator, high x low and low x high in another. Channels are cut into groups of 16, groups into slices of 16;
// warp w of a slice takes groups w and w + 8, of each the streams in order. Warps are added in order, then slices.
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
// Whether rows are expanded on their way; for more of them there is no room in shared memory.
bool TensorMixExpands(const HcMixParams& p);
// partial [rows, slices, kHcPartial]; collapsed gets the collapsed rows before their norm. expand: before that, of the same rows;
// nullptr: not.
void TensorMix(Context& context, const HcMixParams& p, const HcExpandParams* expand, float* partial);

}  // namespace deepinfer::backend::cuda
