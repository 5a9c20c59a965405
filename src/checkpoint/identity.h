// SPDX-License-Identifier: Apache-2.0
// The model identity: a name for what a checkpoint computes, used to keep caches of different models apart.
// SHA-256 over config.json, tokenizer.json, every shard's header, and a fixed sample of every tensor's bytes: its
// beginning, middle and end. At most 3 pieces of 64 bytes a tensor are read, 55 MB for the 510 GB of the published
// model. Weights that differ only between the sampled bytes have the same identity; changes that training, merging or
// requantising make do not look like that.
#pragma once

#include <string>

#include "checkpoint/checkpoint.h"
#include "core/status.h"

namespace deepinfer::checkpoint {

// 64 hexadecimal digits. An absent tokenizer.json counts as empty. Errors: a file that cannot be read any more.
Result<std::string> ModelIdentity(const Checkpoint& checkpoint);

}  // namespace deepinfer::checkpoint
