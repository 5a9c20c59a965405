// SPDX-License-Identifier: Apache-2.0
#include "recipe/control.h"

namespace deepinfer::recipe {
namespace {

constexpr std::array<std::string_view, kNumControls> kSpellings = {
    "<｜begin▁of▁sentence｜>",
    "<｜end▁of▁sentence｜>",
    "<think>",
    "</think>",
    "<｜System｜>",
    "<｜User｜>",
    "<｜Assistant｜>",
    "<｜latest_reminder｜>",
    "｜DSML｜",
    kImageSpellings[0],
    "<｜ref｜>",
    "<｜/ref｜>",
    "<｜box｜>",
    "<｜/box｜>",
    "<｜point｜>",
    "<｜/point｜>",
    "<｜polygon｜>",
    "<｜/polygon｜>",
    "<｜action｜>",
    "<｜query｜>",
    "<｜authority｜>",
    "<｜domain｜>",
    "<｜title｜>",
    "<｜extracted_url｜>",
    "<｜read_url｜>",
    "<｜fim▁begin｜>",
    "<｜fim▁hole｜>",
    "<｜fim▁end｜>",
};

}  // namespace

std::string_view Spelling(Control control) { return kSpellings[static_cast<size_t>(control)]; }

std::optional<GroundingMatch> FindGrounding(std::string_view text, size_t from) {
  constexpr std::string_view kOpening = "<｜";  // all of them begin so
  for (size_t at = text.find(kOpening, from); at != std::string_view::npos; at = text.find(kOpening, at + 1)) {
    for (auto control = Control::kRef; control <= Control::kPolygonEnd;
         control = static_cast<Control>(static_cast<int>(control) + 1)) {
      if (text.substr(at).starts_with(Spelling(control))) return GroundingMatch{at, control};
    }
  }
  return std::nullopt;
}

}  // namespace deepinfer::recipe
