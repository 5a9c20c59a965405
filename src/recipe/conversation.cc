// SPDX-License-Identifier: Apache-2.0
#include "recipe/conversation.h"

#include <utility>

namespace deepinfer::recipe {

void Content::Append(std::string_view separator, Content other) {
  text += separator;
  for (Image& image : other.images) {
    image.offset += text.size();
    images.push_back(std::move(image));
  }
  text += other.text;
}

}  // namespace deepinfer::recipe
