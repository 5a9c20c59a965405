// SPDX-License-Identifier: Apache-2.0
// A rendered prompt: a list of segments, each either one control token or text. Text is never searched for control
// tokens, so nothing that a user, a tool, a schema or an argument spells can become one. Neighbouring texts are one
// segment, because the tokenizer has to see them together to give the ids that the model was trained with.
// Plain values; const use from many threads is safe.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "recipe/control.h"
#include "recipe/conversation.h"

namespace deepinfer::recipe {

struct Segment {
  std::optional<Control> control;
  std::string text;  // where there is no control

  bool operator==(const Segment&) const = default;
};

class Prompt {
 public:
  void Add(Control control) { segments_.push_back({control, {}}); }
  void Add(std::string_view text);
  // Text with a control token in place of each image.
  void Add(const Content& content);
  // The assistant's own text: grounding spellings are tokens.
  void AddGrounded(std::string_view text);

  const std::vector<Segment>& segments() const& { return segments_; }
  const std::vector<Segment>& segments() && = delete;  // they would be gone before they are read
  // The images in the order of their placeholders.
  const std::vector<Image>& images() const& { return images_; }
  const std::vector<Image>& images() && = delete;

  // The prompt as one text, for people and logs, and the byte ranges in it that are control tokens. Encoding it again
  // as a whole is what this class exists to avoid.
  std::string Text() const;
  std::vector<std::pair<size_t, size_t>> ControlRanges() const;

 private:
  std::vector<Segment> segments_;
  std::vector<Image> images_;
};

}  // namespace deepinfer::recipe
