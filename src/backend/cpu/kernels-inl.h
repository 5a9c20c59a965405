// SPDX-License-Identifier: Apache-2.0
// All kernels of one instruction set and their table. Included after one of simd_*.h, by one source file each.
#pragma once

#include "backend/cpu/kernels.h"
//
#include "backend/cpu/math-inl.h"
//
#include "backend/cpu/decode-inl.h"
//
#include "backend/cpu/dot-inl.h"
//
#include "backend/cpu/rows-inl.h"
//
#include "backend/cpu/attention-inl.h"
//
#include "backend/cpu/select-inl.h"

namespace deepinfer::backend::cpu {
namespace {

constexpr Kernels MakeKernels(const char* name) {
  Kernels k = {};
  k.name = name;
  k.dot = Dot;
  k.decode_row = DecodeRow;
  k.order_columns = OrderColumns;
  k.round_bf16 = RoundRowToBf16;
  k.sum_of_squares = SumOfSquares;
  k.rms_norm = RmsNorm;
  k.rope = Rope;
  k.window_panels = WindowPanels;
  k.latent_panels = LatentPanels;
  k.attend = Attend;
  k.index_columns = IndexKeysToColumns;
  k.index_scores = IndexScores;
  k.append_above = AppendAbove;
  k.keep_best = KeepBest;
  k.swiglu = SwiGlu;
  k.sqrt_softplus = SqrtSoftplus;
  k.sigmoid = SigmoidRow;
  k.sinkhorn = Sinkhorn;
  k.hc_collapse = HcCollapse;
  k.hc_expand = HcExpand;
  k.engram_sums = EngramSums;
  k.add_scaled = AddScaled;
  k.pool = Pool;
  return k;
}

}  // namespace
}  // namespace deepinfer::backend::cpu
