// SPDX-License-Identifier: Apache-2.0
// The ops of the reference backend, one function each; parameters as in backend/api/ops.h.
#pragma once

#include "backend/api/ops.h"

namespace deepinfer::backend::reference {

void Embed(const EmbedParams& p);
void EngramLookup(const EngramLookupParams& p);
void EngramApply(const EngramApplyParams& p);
void HcMix(const HcMixParams& p);
void HcCollapse(const HcCollapseParams& p);
void HcExpand(const HcExpandParams& p);
void Sample(const SampleParams& p);
void SampleAdjusted(const SampleAdjustedParams& p);
void ReadLogits(const RowLogitsParams& p);
void HcSum(const HcSumParams& p);
void Linear(const LinearParams& p);
void Add(const AddParams& p);
void RmsNorm(const RmsNormParams& p);
void RopeTable(const RopeTableParams& p);
void Rope(const RopeParams& p);
void StoreWindow(const StoreWindowParams& p);
void Compress(const CompressParams& p);
void StoreLatent(const StoreLatentParams& p);
void StoreIndexKey(const StoreIndexKeyParams& p);
void IndexSelect(const IndexSelectParams& p);
void Attention(const AttentionParams& p);
void Route(const RouteParams& p);
void Experts(const ExpertsParams& p);
void GatherRows(const GatherRowsParams& p);

}  // namespace deepinfer::backend::reference
