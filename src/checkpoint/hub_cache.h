// SPDX-License-Identifier: Apache-2.0
// Where models lie in a directory: as plain folders org/name, or in the layout of the Hugging Face hub's cache,
//
//   models--org--name/refs/<revision>             the commit that a branch or tag stands for
//   models--org--name/snapshots/<commit>/<file>   links to
//   models--org--name/blobs/<hash>                the bytes; <hash>.incomplete while they are being fetched
//
// so that other programs' downloads are found and ours are found by them. Stateless.
#pragma once

#include <string>

#include "checkpoint/model_name.h"
#include "core/status.h"

namespace deepinfer::checkpoint {

// "<model_dir>/models--org--name"
std::string HubFolder(const std::string& model_dir, const ModelName& name);

// The directory of a model that is there and whole. kNotFound where it is not, saying what was looked for or which file
// is missing.
Result<std::string> FindInModelDir(const std::string& model_dir, const ModelName& name);

// kNotFound naming the first file that a checkpoint directory lacks: config, tokenizer, or a shard of its index.
Status CheckComplete(const std::string& directory);

}  // namespace deepinfer::checkpoint
