// SPDX-License-Identifier: Apache-2.0
// The launchers, one per op: they check the parameters, choose a configuration from shapes that belong to the model, and
// queue kernels on the context's stream. Parameters as in backend/api/ops.h. They return before the work is done; errors
// go to the context.
#pragma once

#include "backend/api/ops.h"
#include "backend/cuda/context.h"

namespace deepinfer::backend::cuda {

void Embed(Context& context, const EmbedParams& p);
void EngramLookup(Context& context, const EngramLookupParams& p);
void EngramApply(Context& context, const EngramApplyParams& p);
void HcMix(Context& context, const HcMixParams& p);
void HcCollapse(Context& context, const HcCollapseParams& p);
void HcExpand(Context& context, const HcExpandParams& p);
void HcExpandMix(Context& context, const HcExpandParams& expand, const HcMixParams& mix);
void Linear(Context& context, const LinearParams& p);
// Backend::input_bytes.
int64_t InputBytes(const Matrix& w, int64_t groups, Activations activations, int64_t rows);
void RmsNorm(Context& context, const RmsNormParams& p);
void LinearNorm(Context& context, const LinearParams& linear, const RmsNormParams& norm);
void LinearExpandMix(Context& context, const LinearParams& linear, const HcExpandParams& expand, const HcMixParams& mix);
void RopeTable(Context& context, const RopeTableParams& p);
void Rope(Context& context, const RopeParams& p);
void StoreWindow(Context& context, const StoreWindowParams& p);
void LinearStoreWindow(Context& context, const LinearParams& linear, const StoreWindowParams& store);
void Compress(Context& context, const CompressParams& p);
void StoreLatent(Context& context, const StoreLatentParams& p);
void StoreIndexKey(Context& context, const StoreIndexKeyParams& p);
void IndexSelect(Context& context, const IndexSelectParams& p);
void Attention(Context& context, const AttentionParams& p);
void Route(Context& context, const RouteParams& p);
void Experts(Context& context, const ExpertsParams& p);
void GatherRows(Context& context, const GatherRowsParams& p);
void Sample(Context& context, const SampleParams& p);
void SampleAdjusted(Context& context, const SampleAdjustedParams& p);
void ReadLogits(Context& context, const RowLogitsParams& p);
void HcSum(Context& context, const HcSumParams& p);
void Add(Context& context, const AddParams& p);

}  // namespace deepinfer::backend::cuda
