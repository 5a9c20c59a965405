// SPDX-License-Identifier: Apache-2.0
// `deepinfer serve`: engine, endpoints and pages in one process.
#pragma once

#include "core/status.h"
#include "server/config.h"

namespace deepinfer::server {

// Loads the model at `model_directory` (what config.model names), serves until a signal and returns the exit code. To
// be called before any other thread exists.
Result<int> Serve(ServerConfig config, const std::string& model_directory);

}  // namespace deepinfer::server
