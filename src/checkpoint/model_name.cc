// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/model_name.h"

#include <algorithm>

namespace deepinfer::checkpoint {
namespace {

constexpr size_t kPartMax = 96;
constexpr size_t kRevisionMax = 200;

bool IsPlain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
}

// "--" is the separator of the cache layout, ".." a way out of a directory.
bool IsPart(std::string_view part) {
  return !part.empty() && part.size() <= kPartMax && part.front() != '.' && part.front() != '-' && part.back() != '.' &&
         std::all_of(part.begin(), part.end(), IsPlain) && part.find("--") == std::string_view::npos &&
         part.find("..") == std::string_view::npos;
}

bool IsRevision(std::string_view revision) {
  if (revision.empty() || revision.size() > kRevisionMax) return false;
  while (true) {
    const size_t slash = revision.find('/');
    const std::string_view part = revision.substr(0, slash);
    if (part.empty() || part.front() == '.' || part.front() == '-' || !std::all_of(part.begin(), part.end(), IsPlain) ||
        part.find("..") != std::string_view::npos) {
      return false;
    }
    if (slash == std::string_view::npos) return true;
    revision.remove_prefix(slash + 1);
  }
}

}  // namespace

Result<ModelName> ParseModelName(std::string_view text) {
  ModelName name;
  std::string_view repository = text;
  if (const size_t at = text.find('@'); at != std::string_view::npos) {
    repository = text.substr(0, at);
    name.revision = text.substr(at + 1);
    name.revision_given = true;
  }
  const size_t slash = repository.find('/');
  if (slash == std::string_view::npos || !IsPart(repository.substr(0, slash)) ||
      !IsPart(repository.substr(slash + 1)) || !IsRevision(name.revision)) {
    return Error(Code::kInvalidArgument, "{}: expected a directory, or a model as org/name or org/name@revision",
                 text.substr(0, 300));
  }
  name.repository = repository;
  return name;
}

bool IsLowerHex(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

bool IsCommit(std::string_view revision) { return revision.size() == 40 && IsLowerHex(revision); }

}  // namespace deepinfer::checkpoint
