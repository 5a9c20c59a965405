// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <utility>

#include "recipe/lowering.h"

namespace deepinfer::recipe {
namespace {

constexpr size_t kMaxUrlBytes = 8192;
constexpr std::array<std::string_view, 5> kImageTypes = {"image/jpeg", "image/jpg", "image/png", "image/gif",
                                                         "image/webp"};

std::string Lowercase(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

bool IsSpace(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f'; }

std::string_view Trim(std::string_view text) {
  while (!text.empty() && IsSpace(text.front())) text.remove_prefix(1);
  while (!text.empty() && IsSpace(text.back())) text.remove_suffix(1);
  return text;
}

// "data:<type>[;...];base64,<data>"; spaces in the data are no part of it.
Status CheckDataUrl(const Field& field, std::string_view url) {
  constexpr std::string_view kScheme = "data:";
  constexpr std::string_view kMarker = "base64,";
  const size_t marker = url.find(kMarker, kScheme.size());
  if (marker == std::string_view::npos) return field.Bad("expected a base64 data URL");
  const std::string_view header = url.substr(kScheme.size(), marker - kScheme.size());
  const std::string type = Lowercase(Trim(header.substr(0, header.find(';'))));
  if (std::find(kImageTypes.begin(), kImageTypes.end(), type) == kImageTypes.end()) {
    return field.Bad("not a supported image type: jpeg, png, gif and webp are");
  }
  std::string data(url.substr(marker + kMarker.size()));
  std::erase_if(data, IsSpace);
  return IsBase64(data, /*padding_optional=*/true) ? Status() : field.Bad("not valid base64");
}

}  // namespace

bool IsBase64(std::string_view text, bool padding_optional) {
  size_t padding = 0;
  if (text.size() % 4 == 0) {
    while (padding < 2 && text.ends_with('=')) {
      text.remove_suffix(1);
      ++padding;
    }
  } else if (!padding_optional) {
    return false;
  }
  const auto value = [](char c) -> int {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
  };
  if (!std::all_of(text.begin(), text.end(), [&](char c) { return value(c) >= 0; })) return false;
  const size_t rest = text.size() % 4;
  if (rest == 1) return false;
  // Where padding is demanded, so are zeros in the bits that the last character has too many.
  const int unused_bits = rest == 2 ? 0xF : rest == 3 ? 0x3 : 0;
  return padding_optional || rest == 0 || (value(text.back()) & unused_bits) == 0;
}

Status AppendImage(const Field& url, ImageDetail detail, Request* request, Content* content) {
  DI_ASSIGN_OR_RETURN(const std::string source, ReadString(url));
  if (request->version == ModelVersion::kV4) {
    content->text += "[Unsupported Image]";
    return {};
  }
  const std::string start = Lowercase(source.substr(0, 5));
  Image image{.offset = content->text.size(), .kind = Image::Kind::kUrl, .source = source, .detail = detail,
              .path = url.pointer()};
  if (start.starts_with("http")) {
    if (source.size() > kMaxUrlBytes) {
      return url.Bad("a URL of {} bytes is over the limit of {}; pass the image as a base64 data URL", source.size(),
                     kMaxUrlBytes);
    }
  } else if (start == "data:") {
    DI_RETURN_IF_ERROR(CheckDataUrl(url, source));
    image.kind = Image::Kind::kDataUrl;
  } else {
    return url.Bad("expected an http(s) URL or a data URL");
  }
  content->images.push_back(std::move(image));
  return {};
}

Result<ImageDetail> ReadDetail(const Field& field) {
  if (!field.given()) return ImageDetail::kHigh;
  return ReadWord<ImageDetail>(field, {{"low", ImageDetail::kLow},
                                       {"high", ImageDetail::kHigh},
                                       {"original", ImageDetail::kOriginal},
                                       {"auto", ImageDetail::kAuto}});
}

void PartJoiner::Add(Content part) {
  content_->Append(first_ ? "" : "\n\n", std::move(part));
  first_ = false;
}

}  // namespace deepinfer::recipe
