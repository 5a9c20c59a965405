// SPDX-License-Identifier: Apache-2.0
#include "recipe/prompt.h"

namespace deepinfer::recipe {

void Prompt::Add(std::string_view text) {
  if (text.empty()) return;
  if (segments_.empty() || segments_.back().control) segments_.push_back({std::nullopt, {}});
  segments_.back().text += text;
}

void Prompt::Add(const Content& content) {
  const std::string_view text = content.text;
  size_t done = 0;
  for (const Image& image : content.images) {
    Add(text.substr(done, image.offset - done));
    Add(Control::kImage);
    images_.push_back(image);
    done = image.offset;
  }
  Add(text.substr(done));
}

void Prompt::AddGrounded(std::string_view text) {
  size_t done = 0;
  while (const auto match = FindGrounding(text, done)) {
    Add(text.substr(done, match->position - done));
    Add(match->control);
    done = match->position + Spelling(match->control).size();
  }
  Add(text.substr(done));
}

std::string Prompt::Text() const {
  std::string text;
  for (const Segment& segment : segments_) text += segment.control ? Spelling(*segment.control) : segment.text;
  return text;
}

std::vector<std::pair<size_t, size_t>> Prompt::ControlRanges() const {
  std::vector<std::pair<size_t, size_t>> ranges;
  size_t at = 0;
  for (const Segment& segment : segments_) {
    const size_t size = segment.control ? Spelling(*segment.control).size() : segment.text.size();
    if (segment.control) ranges.emplace_back(at, at + size);
    at += size;
  }
  return ranges;
}

}  // namespace deepinfer::recipe
