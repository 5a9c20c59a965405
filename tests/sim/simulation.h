// SPDX-License-Identifier: Apache-2.0
// One seeded life of a scheduler: a random configuration, a few hundred requests that arrive, share prefixes, fork,
// fail and are cancelled at random, a fake executor and a fake clock, and every invariant after every call.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "sched/scheduler.h"

namespace deepinfer::sim {

struct Report {
  std::string error;  // "" or the first thing that was wrong, and when
  sched::Stats stats;
  int64_t requests = 0;
  int64_t longest_wait_steps = 0;  // from arrival to the first row
  int64_t evictions = 0;

  void Add(const Report& other);
};

Report RunSimulation(uint64_t seed);

}  // namespace deepinfer::sim
