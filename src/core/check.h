// SPDX-License-Identifier: Apache-2.0
// Checks for programmer errors: they stay on in release builds and end the process with file, line and reason.
// What the world can get wrong (files, requests, peers) is reported as a Status instead (core/status.h).
#pragma once

namespace deepinfer::core {

// Prints `file:line: check failed: expression` to stderr and aborts.
[[noreturn]] void CheckFailed(const char* file, int line, const char* expression);

}  // namespace deepinfer::core

#define DI_CHECK(condition) \
  (__builtin_expect(static_cast<bool>(condition), 1) ? (void)0 : ::deepinfer::core::CheckFailed(__FILE__, __LINE__, #condition))

#ifdef NDEBUG
#define DI_DCHECK(condition) ((void)0)
#else
#define DI_DCHECK(condition) DI_CHECK(condition)
#endif
