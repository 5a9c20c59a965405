// SPDX-License-Identifier: Apache-2.0
// Before the first request, on a backend with memory of its own: steps of the largest shape and of every shape that is
// recorded, those of the draft model among them, so that whatever they need is taken now, and memory that does not suffice
// is an error at start. And the plan of that memory, for people.
#pragma once

#include <string>

#include "engine/drafter.h"
#include "engine/kv_memory.h"
#include "engine/loaded_model.h"
#include "model/deepseek_v41/forward.h"

namespace deepinfer::engine {

struct WarmUpResult {
  int64_t recordings = 0;
  int64_t recording_bytes = 0;  // of the device
};

// `drafter`: or none. Runs the steps on slots whose tables point at the first blocks and pages, which are left with garbage.
// Does nothing where the backend does not record. Errors: kResourceExhausted, kInternal (a device error).
Result<WarmUpResult> WarmUp(const LoadedModel& loaded, const sched::Config& config, KvMemory* memory,
                            model::deepseek_v41::Model* model, Drafter* drafter);

// One line: what lies where on the device, in bytes, and how fast the weights came. Empty for backends on the host.
std::string MemoryPlan(const LoadedModel& loaded, const WarmUpResult& warm_up, int64_t cache_bytes, int64_t scratch_bytes);

}  // namespace deepinfer::engine
