// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/hub_cache.h"

#include <filesystem>

#include "checkpoint/shard_index.h"
#include "core/file.h"

namespace deepinfer::checkpoint {
namespace {

namespace fs = std::filesystem;

bool IsFile(const std::string& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);  // follows links: a dangling one is no file
}

bool IsDirectory(const std::string& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

// The commit that `name`'s revision stands for in this folder; "" where it is not known.
std::string CommitOf(const std::string& folder, const ModelName& name) {
  if (IsCommit(name.revision)) return name.revision;
  constexpr size_t kRefSizeMax = 256;
  const Result<std::string> ref = ReadFile(folder + "/refs/" + name.revision, kRefSizeMax);
  if (ref.ok()) {
    const std::string commit = ref->substr(0, ref->find_first_of(" \r\n"));
    return IsCommit(commit) ? commit : "";
  }
  if (name.revision_given) return "";
  // Fetched by commit only: if there is just one, it is meant.
  std::string only;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder + "/snapshots", ignored)) {
    if (!only.empty()) return "";
    only = entry.path().filename().string();
  }
  return only;
}

}  // namespace

std::string HubFolder(const std::string& model_dir, const ModelName& name) {
  std::string folder = name.repository;
  folder.replace(folder.find('/'), 1, "--");
  return model_dir + "/models--" + folder;
}

Status CheckComplete(const std::string& directory) {
  for (const char* file : {"config.json", "tokenizer.json"}) {
    if (!IsFile(directory + "/" + file)) return Error(Code::kNotFound, "{}: no {} in it", directory, file);
  }
  const std::string index_path = directory + "/" + kShardIndexName;
  if (!IsFile(index_path)) {
    if (IsFile(directory + "/" + kSingleShardName)) return Status();
    return Error(Code::kNotFound, "{}: neither {} nor {} in it", directory, kShardIndexName, kSingleShardName);
  }
  DI_ASSIGN_OR_RETURN(const ShardIndex index, ReadShardIndex(index_path));
  for (const std::string& file : index.Files()) {
    if (!IsFile(directory + "/" + file)) {
      return Error(Code::kNotFound, "{}: missing shard {}, named by {}", directory, file, kShardIndexName);
    }
  }
  return Status();
}

Result<std::string> FindInModelDir(const std::string& model_dir, const ModelName& name) {
  const std::string plain = model_dir + "/" + name.repository;
  // A plain folder has no revision; what it lacks is reported when it is opened.
  if (!name.revision_given && IsFile(plain + "/config.json")) return plain;
  const std::string folder = HubFolder(model_dir, name);
  const std::string commit = CommitOf(folder, name);
  const std::string snapshot = folder + "/snapshots/" + commit;
  if (commit.empty() || !IsDirectory(snapshot)) {
    return Error(Code::kNotFound, "{}: not in {} (looked for {} and {})", name.ToString(), model_dir, plain, folder);
  }
  const Status complete = CheckComplete(snapshot);
  if (!complete.ok()) {
    return Error(Code::kNotFound, "{}: its download is not complete: {}", name.ToString(), complete.message());
  }
  return snapshot;
}

}  // namespace deepinfer::checkpoint
