// SPDX-License-Identifier: Apache-2.0
#include "cli/interrupt.h"

#include <csignal>

namespace deepinfer::cli {
namespace {

volatile std::sig_atomic_t g_interrupted = 0;

}  // namespace

InterruptScope::InterruptScope() {
  g_interrupted = 0;
  struct sigaction action = {};
  action.sa_handler = [](int) { g_interrupted = 1; };
  sigaction(SIGINT, &action, nullptr);  // without SA_RESTART: a blocking read of input returns
}

InterruptScope::~InterruptScope() { std::signal(SIGINT, SIG_DFL); }

bool InterruptScope::interrupted() const { return g_interrupted != 0; }

void InterruptScope::Reset() { g_interrupted = 0; }

}  // namespace deepinfer::cli
