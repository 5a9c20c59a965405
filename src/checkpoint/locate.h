// SPDX-License-Identifier: Apache-2.0
// From what a user gives as a model to a directory: an existing directory, or org/name[@revision] in the model
// directory, fetched from the hub where it is not there yet.
#pragma once

#include <string>

#include "checkpoint/hub.h"
#include "core/status.h"

namespace deepinfer::checkpoint {

struct LocateOptions {
  std::string model_dir;  // where checkpoints lie and go; "": only directories are accepted
  bool offline = false;   // never fetch
  HubOptions hub;         // its model_dir is not used
};

// The directory of `model`. Errors say what was looked for and what to do; see DownloadModel for those of fetching.
Result<std::string> LocateModel(const std::string& model, const LocateOptions& options);

}  // namespace deepinfer::checkpoint
