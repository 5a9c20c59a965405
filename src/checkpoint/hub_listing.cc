// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/hub_listing.h"

#include "checkpoint/model_name.h"
#include "core/json.h"

namespace deepinfer::checkpoint {
namespace {

std::string StringAt(const Json& object, std::string_view key) {
  const Json* value = object.Find(key);
  return value != nullptr && value->IsString() ? value->AsString() : std::string();
}

std::optional<HubFile> ParseFile(const Json& json) {
  HubFile file;
  file.name = StringAt(json, "rfilename");
  const Json* size = json.Find("size");
  file.hash = StringAt(json, "blobId");
  if (const Json* lfs = json.Find("lfs"); lfs != nullptr && lfs->IsObject()) {
    file.hash = StringAt(*lfs, "sha256");
    if (file.hash.empty()) file.hash = StringAt(*lfs, "oid");
    if (lfs->Find("size") != nullptr) size = lfs->Find("size");
  }
  const int64_t bytes = size == nullptr ? -1 : size->ToInt64().value_or(-1);
  const bool hashed = (file.hash.size() == 40 || file.hash.size() == 64) && IsLowerHex(file.hash);
  if (file.name.empty() || !hashed || bytes < 0) return std::nullopt;
  file.size = bytes;
  return file;
}

}  // namespace

const HubFile* HubListing::Find(const std::string& name) const {
  const auto found = files.find(name);
  return found == files.end() ? nullptr : &found->second;
}

Result<HubListing> ParseHubListing(std::string_view json_text) {
  Result<Json> json = ParseJson(json_text, {.size_bytes_max = kHubListingSizeMax, .depth_max = 64});
  if (!json.ok()) return Error(Code::kDataLoss, "the hub's answer: {}", json.status().message());
  HubListing listing;
  listing.commit = StringAt(*json, "sha");
  if (!IsCommit(listing.commit)) return Error(Code::kDataLoss, "the hub's answer names no commit (sha)");
  const Json* siblings = json->Find("siblings");
  if (siblings == nullptr || !siblings->IsArray()) {
    return Error(Code::kDataLoss, "the hub's answer has no list of files (siblings)");
  }
  for (const Json& sibling : siblings->Items()) {
    std::optional<HubFile> file = ParseFile(sibling);
    if (file) listing.files[file->name] = *std::move(file);
  }
  return listing;
}

}  // namespace deepinfer::checkpoint
