// SPDX-License-Identifier: Apache-2.0
// Which model a slice is: the published one cut down to one layer of each kind, with fewer experts and a shorter Engram
// table, but every width as published; or a small one with the same kinds, for tests.
#pragma once

#include <cstdint>
#include <string>

#include "core/status.h"

namespace deepinfer::tools {

struct SliceOptions {
  std::string tokenizer;        // a tokenizer.json
  int64_t num_experts = 48;     // 1/8 of the published ones
  int64_t engram_vocab = 160000;  // the table has about 24 times as many rows
  int64_t draft_stages = 0;
  bool small = false;           // small widths
};

// config.json of the slice. Layers:
//   0 window only   1 window only, Engram   2 KV and index source, ratio 2   3 reuses it
//   4 KV, index and candidate source, ratio 1   5 index source within the candidates   6 reuses it
// Errors: the tokenizer's.
Result<std::string> SliceConfig(const SliceOptions& options);

}  // namespace deepinfer::tools
