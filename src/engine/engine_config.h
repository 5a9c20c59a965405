// SPDX-License-Identifier: Apache-2.0
// The limits and cache memory that options give an engine, without opening a model: the engine's own, and what `info` shows.
#pragma once

#include "checkpoint/config.h"
#include "deepinfer/engine.h"
#include "sched/config.h"

namespace deepinfer::engine {

// kInvalidArgument with the field's name and range, as for every number that somebody sets.
Status InRange(const char* field, int64_t value, int64_t low, int64_t high);

// `draft_rows`: drafts that a verify step may carry; 0: the draft stages have no windows. kInvalidArgument names the option,
// or says how much memory would do.
Result<sched::Config> MakeConfig(const EngineOptions& options, const checkpoint::ModelConfig& model, int32_t draft_rows);

}  // namespace deepinfer::engine
