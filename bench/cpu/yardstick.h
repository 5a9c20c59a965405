// SPDX-License-Identifier: Apache-2.0
// What the hardware can do, measured in the same run as what is held against it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "core/thread_pool.h"

namespace deepinfer::bench {

// The last-level cache as the system reports it; 32 MiB where it does not.
size_t LastLevelCacheBytes();

// What time a figure counts: the wall clock, or the time that the calling thread ran, which other work on the machine
// does not lengthen (for work on one thread).
enum class Time { kWall, kThread };

// Bytes/s of a walk over `pieces` pieces of `bytes` each, as the median over the pieces.
double MedianRate(Time time, size_t pieces, double bytes, const std::function<void(size_t piece)>& work);

struct Bandwidth {
  double read = 0;  // bytes/s of reading and summing
  double copy = 0;  // bytes/s of memcpy, read and written bytes counted
  double best() const { return read > copy ? read : copy; }
};
// Over all of `bytes` (the lower half is copied to the upper one, so their contents become alike).
Bandwidth MeasureBandwidth(std::vector<uint8_t>& bytes, ThreadPool& pool);

}  // namespace deepinfer::bench
