// SPDX-License-Identifier: Apache-2.0
// The control tokens of the prompt format by what they mean. How they are spelled is for texts shown to people and for
// finding their ids in a tokenizer once; a prompt is never searched for these spellings.
// Thread-safe: only constants.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace deepinfer::recipe {

enum class Control : uint8_t {
  kBos,
  kEos,
  kThinkStart,
  kThinkEnd,
  kSystem,  // V4.1 only
  kUser,
  kAssistant,
  kLatestReminder,
  kDsml,
  kImage,
  // Grounding: places in an image. Tokens in the assistant's own text, plain text everywhere else.
  kRef,
  kRefEnd,
  kBox,
  kBoxEnd,
  kPoint,
  kPointEnd,
  kPolygon,
  kPolygonEnd,
  // Quick tasks.
  kAction,
  kQuery,
  kAuthority,
  kDomain,
  kTitle,
  kExtractedUrl,
  kReadUrl,
  // Fill in the middle.
  kFimBegin,
  kFimHole,
  kFimEnd,
};
inline constexpr size_t kNumControls = static_cast<size_t>(Control::kFimEnd) + 1;

// `｜` is U+FF5C and `▁` is U+2581.
std::string_view Spelling(Control control);

// The image placeholder has had other spellings; all that mean the same token, the usual one first.
inline constexpr std::array<std::string_view, 2> kImageSpellings = {"<｜deepseek_image｜>", "<｜image｜>"};

struct GroundingMatch {
  size_t position = 0;
  Control control = Control::kRef;
};
// The first grounding spelling in `text` at or after `from`.
std::optional<GroundingMatch> FindGrounding(std::string_view text, size_t from);

}  // namespace deepinfer::recipe
