// SPDX-License-Identifier: Apache-2.0
// The command line of `deepinfer`: subcommands, their options, and what they print. Results go to stdout, everything
// else to stderr.
#pragma once

namespace deepinfer::cli {

// Exit codes (README.md has the same table).
inline constexpr int kExitOk = 0;
inline constexpr int kExitError = 1;        // the message on stderr says what, where and what to do
inline constexpr int kExitUsage = 2;        // the command line itself is wrong
inline constexpr int kExitInterrupted = 130;  // Ctrl-C

int Run(int argc, char** argv);

}  // namespace deepinfer::cli
