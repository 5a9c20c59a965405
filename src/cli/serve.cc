// SPDX-License-Identifier: Apache-2.0
// deepinfer serve: the engine behind HTTP.
#include "server/serve.h"

#include "cli/common.h"
#include "server/config.h"

namespace deepinfer::cli {

Result<int> Serve(const ServeOptions& options) {
  DI_ASSIGN_OR_RETURN(server::ServerConfig config, server::LoadConfig(options.config_file, options.flags));
  ModelOptions model;
  model.model = config.model;
  model.offline = config.offline;
  model.backend = config.engine.backend;
  config.engine.backend = BackendName(model);
  DI_ASSIGN_OR_RETURN(const std::string directory, FindModel(model));
  return server::Serve(std::move(config), directory);
}

}  // namespace deepinfer::cli
