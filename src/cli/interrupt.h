// SPDX-License-Identifier: Apache-2.0
// Ctrl-C as a flag: while an InterruptScope lives, SIGINT does not end the process but is remembered. One at a time.
#pragma once

namespace deepinfer::cli {

class InterruptScope {
 public:
  InterruptScope();
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

  bool interrupted() const;
  void Reset();
};

}  // namespace deepinfer::cli
