// SPDX-License-Identifier: Apache-2.0
// Long texts on several threads: cut where nothing that encoding does reaches across, encode the parts, join the ids.
// Stateless.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer {

// Texts below this are not worth a second thread.
inline constexpr size_t kParallelBytesMin = 64 << 10;

// The ends of parts of `text` of about `part_bytes`, the last one the text's end. `safe(offset)` tells whether the
// text may be cut there. A part becomes longer where no safe cut is near: a megabyte of blanks stays one part.
std::vector<size_t> CutSafely(std::string_view text, size_t part_bytes, const std::function<bool(size_t)>& safe);

// Appends what `encode` gives for the parts of `text`, in order. `encode(part, ids)` appends the ids of a part and is
// called from up to `threads` threads, the calling one among them. After an error `ids` is as it was.
Status EncodeInParallel(std::string_view text, int threads, const std::function<bool(size_t)>& safe,
                        const std::function<Status(std::string_view, std::vector<TokenId>*)>& encode,
                        std::vector<TokenId>* ids);

}  // namespace deepinfer
