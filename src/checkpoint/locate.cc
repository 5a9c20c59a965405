// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/locate.h"

#include <filesystem>

#include "checkpoint/hub_cache.h"

namespace deepinfer::checkpoint {
namespace {

// What can only be meant as a path.
bool LooksLikePath(const std::string& model) {
  for (const char* prefix : {"/", "./", "../", "~"}) {
    if (model.starts_with(prefix)) return true;
  }
  return model == "." || model == ".." || model.ends_with("/");
}

}  // namespace

Result<std::string> LocateModel(const std::string& model, const LocateOptions& options) {
  std::error_code ignored;
  if (!model.empty() && std::filesystem::is_directory(model, ignored)) return model;
  if (LooksLikePath(model)) return Error(Code::kNotFound, "{}: no such directory", model);
  DI_ASSIGN_OR_RETURN(const ModelName name, ParseModelName(model));
  if (options.model_dir.empty()) {
    return Error(Code::kNotFound, "{}: no such directory, and no model directory is set to look in or fetch to", model);
  }
  Result<std::string> found = FindInModelDir(options.model_dir, name);
  if (found.ok() || found.status().code() != Code::kNotFound) return found;
  if (options.offline) {
    return Error(Code::kNotFound, "{}; not fetched in offline mode", found.status().message());
  }
  HubOptions hub = options.hub;
  hub.model_dir = options.model_dir;
  return DownloadModel(name, hub);
}

}  // namespace deepinfer::checkpoint
