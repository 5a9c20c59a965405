// SPDX-License-Identifier: Apache-2.0
// The SIGBUS handler behind MappedFile (core/file.h), which see. Register and Unregister may be called from any
// thread; the handler reads the table of mappings without a lock.
#pragma once

#include <cstddef>

namespace deepinfer::core {

class SigbusGuard {
 public:
  static constexpr size_t kSlotsMax = 4096;
  struct Slot;

  // Guards [address, address + size); nullptr where all slots are taken. The first call installs the handler.
  static Slot* Register(void* address, size_t size);
  // To be called before the range is unmapped.
  static void Unregister(Slot* slot);
  // Whether a page of the range was replaced by zeros.
  static bool Damaged(const Slot* slot);
};

}  // namespace deepinfer::core
