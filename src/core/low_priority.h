// SPDX-License-Identifier: Apache-2.0
// Work that should take what others leave of the processors.
#pragma once

namespace deepinfer {

// The calling thread goes on at a lower priority than it had, for good: beside one that kept it, it gets a tenth of a processor;
// an idle one it has to itself. Where the system does not allow it nothing changes.
void LowerThreadPriority();

}  // namespace deepinfer
