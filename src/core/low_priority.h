// SPDX-License-Identifier: Apache-2.0
// Work that should take what others leave of the processors.
#pragma once

namespace deepinfer {

// The calling thread goes on at low priority, for good: against a thread of usual priority it gets a tenth of a processor, an
// idle one it has to itself. Where the system does not allow it nothing changes.
void LowerThreadPriority();

}  // namespace deepinfer
