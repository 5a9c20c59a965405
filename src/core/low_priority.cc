// SPDX-License-Identifier: Apache-2.0
#include "core/low_priority.h"

#include <sys/resource.h>
#include <unistd.h>

namespace deepinfer {

void LowerThreadPriority() {
  constexpr int kLower = 10;
  // On Linux the id of a thread names that thread alone.
  const auto thread = static_cast<id_t>(gettid());
  static_cast<void>(setpriority(PRIO_PROCESS, thread, getpriority(PRIO_PROCESS, thread) + kLower));
}

}  // namespace deepinfer
