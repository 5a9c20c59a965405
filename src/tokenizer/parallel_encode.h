// SPDX-License-Identifier: Apache-2.0
// Long texts on several threads: cut where the pre-tokenizer has a border whatever surrounds it, so the ids are those
// of the text in one piece. Stateless.
#pragma once

#include <string_view>
#include <vector>

#include "core/status.h"
#include "tokenizer/piece_encoder.h"

namespace deepinfer {

// The ends of parts of `text` (valid UTF-8) of about `part_bytes`, the last one the text's end. A part becomes longer
// where no safe cut is near: a megabyte of blanks stays one part.
std::vector<size_t> CutSafely(std::string_view text, size_t part_bytes, const PreTokenizer& pre_tokenizer);

// Appends what encoder.Append(text, ids) does. Uses at most `threads` threads, the calling one among them, and fewer
// for texts that are too short to gain. After an error `ids` holds some of them.
Status AppendInParallel(const PieceEncoder& encoder, std::string_view text, int threads, std::vector<TokenId>* ids);

}  // namespace deepinfer
