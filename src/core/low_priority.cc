// SPDX-License-Identifier: Apache-2.0
#include "core/low_priority.h"

#include <sys/resource.h>
#include <unistd.h>

namespace deepinfer {

void LowerThreadPriority() {
  constexpr int kNice = 10;
  // On Linux the id of a thread names that thread alone.
  static_cast<void>(setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kNice));
}

}  // namespace deepinfer
