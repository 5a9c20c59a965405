// SPDX-License-Identifier: Apache-2.0
// The ops of the CPU backend, one function each; parameters as in backend/api/ops.h. They cut the work into pieces for
// the threads; what is computed for a row never depends on the cut.
#pragma once

#include <vector>

#include "backend/api/ops.h"
#include "backend/cpu/arena.h"
#include "backend/cpu/kernels.h"
#include "core/thread_pool.h"

namespace deepinfer::backend::cpu {

// Below this many multiply-adds an op stays on the calling thread: some microseconds, a few times what waking costs.
constexpr int64_t kSerialWork = 16 << 10;

// What every op needs: the kernels, the threads and their scratch.
struct Context {
  Context(const Kernels& table, int num_threads) : kernels(table), pool(num_threads), arenas(static_cast<size_t>(num_threads)) {}

  // Calls task(thread, begin, end) over runs of [0, n). All on the calling thread where the whole is so little work
  // (in multiply-adds) that waking others costs more.
  void For(int64_t n, int64_t work_each, FunctionRef<void(int, int64_t, int64_t)> task);
  // The scratch of one thread, for use inside a task.
  Arena& arena(int thread) { return arenas[static_cast<size_t>(thread)]; }

  const Kernels& kernels;
  ThreadPool pool;
  Arena shared;  // of the calling thread, reset at the start of each op
  Arena mixes;   // the same for what lives across an op inside an op
  std::vector<Arena> arenas;
};

// Whether products with w change their input first, by rounding, by another column order or by filling up.
bool NeedsPreparation(const Matrix& w, Activations activations);
// out[0 .. PaddedColumns(n)) = x[0 .. n) as products with w want it. n is a multiple of 32 where the format has blocks;
// out may be x.
void PrepareInput(const Context& context, const Matrix& w, Activations activations, const float* x, int64_t n, float* out);
inline int64_t PaddedColumns(int64_t cols) { return (cols + 31) / 32 * 32; }

void Embed(Context& context, const EmbedParams& p);
void EngramLookup(Context& context, const EngramLookupParams& p);
void EngramApply(Context& context, const EngramApplyParams& p);
void HcMix(Context& context, const HcMixParams& p);
void HcCollapse(Context& context, const HcCollapseParams& p);
void HcExpand(Context& context, const HcExpandParams& p);
void HcSum(Context& context, const HcSumParams& p);
void Linear(Context& context, const LinearParams& p);
void Add(Context& context, const AddParams& p);
void RmsNorm(Context& context, const RmsNormParams& p);
void RopeTable(Context& context, const RopeTableParams& p);
void Rope(Context& context, const RopeParams& p);
void StoreWindow(Context& context, const StoreWindowParams& p);
void Compress(Context& context, const CompressParams& p);
void StoreLatent(Context& context, const StoreLatentParams& p);
void StoreIndexKey(Context& context, const StoreIndexKeyParams& p);
void IndexSelect(Context& context, const IndexSelectParams& p);
void Attention(Context& context, const AttentionParams& p);
void Route(Context& context, const RouteParams& p);
void Experts(Context& context, const ExpertsParams& p);
void GatherRows(Context& context, const GatherRowsParams& p);

}  // namespace deepinfer::backend::cpu
