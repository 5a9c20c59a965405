// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/hub.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <vector>

#include "checkpoint/config.h"
#include "checkpoint/hub_cache.h"
#include "checkpoint/hub_listing.h"
#include "checkpoint/hub_transfer.h"
#include "checkpoint/shard_index.h"
#include "core/file.h"

namespace deepinfer::checkpoint {
namespace {

namespace fs = std::filesystem;

// What a checkpoint needs beside its weights; the first two it must have.
constexpr const char* kRequiredFiles[] = {"config.json", "tokenizer.json"};
constexpr const char* kOptionalFiles[] = {"tokenizer_config.json", "generation_config.json"};

// Percent-encoding of all but unreserved characters, so of '/' too.
std::string UrlEncode(std::string_view text) {
  std::string encoded;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
                       c == '_' || c == '.' || c == '~';
    encoded += plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return encoded;
}

// Holds a lock on a folder against other processes (and other downloads of this one).
class FolderLock {
 public:
  FolderLock() = default;
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  ~FolderLock() {
    if (fd_ >= 0) close(fd_);
  }
  Status Acquire(const std::string& folder) {
    const std::string path = folder + "/.deepinfer.lock";
    fd_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd_ < 0) return FileError(errno, "open", path);
    if (flock(fd_, LOCK_EX | LOCK_NB) == 0) return Status();
    return Error(Code::kUnavailable, "{}: another process is fetching this model", folder);
  }

 private:
  int fd_ = -1;
};

Status MakeDirectories(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  return error ? FileError(error.value(), "create", path) : Status();
}

class Download {
 public:
  Download(const ModelName& name, const HubOptions& options)
      : name_(name), options_(options), transfer_(options, [this](int64_t bytes) { return Report(bytes); }) {
    folder_ = HubFolder(options.model_dir, name);
    endpoint_ = options.endpoint;
    while (endpoint_.ends_with('/')) endpoint_.pop_back();
  }

  Result<std::string> Run() {
    DI_RETURN_IF_ERROR(CheckOptions());
    DI_RETURN_IF_ERROR(MakeDirectories(folder_ + "/blobs"));
    FolderLock lock;
    DI_RETURN_IF_ERROR(lock.Acquire(folder_));
    DI_RETURN_IF_ERROR(List());
    DI_RETURN_IF_ERROR(FetchSmallFiles());
    DI_RETURN_IF_ERROR(FetchShards());
    if (!IsCommit(name_.revision)) {
      const std::string ref = folder_ + "/refs/" + name_.revision;
      DI_RETURN_IF_ERROR(MakeDirectories(fs::path(ref).parent_path().string()));
      DI_RETURN_IF_ERROR(WriteFileAtomically(ref, listing_.commit));
    }
    return snapshot_;
  }

 private:
  Status CheckOptions() const {
    if (!endpoint_.starts_with("https://") && !endpoint_.starts_with("http://")) {
      return Error(Code::kInvalidArgument, "hub endpoint {}: expected an http or https URL", endpoint_);
    }
    // The token goes into a header line.
    if (std::any_of(options_.token.begin(), options_.token.end(), [](char c) { return c <= ' ' || c > '~'; })) {
      return Error(Code::kInvalidArgument, "hub token (HF_TOKEN): blanks or control characters in it");
    }
    return Status();
  }

  Status List() {
    const std::string url =
        fmt::format("{}/api/models/{}/revision/{}?blobs=true", endpoint_, name_.repository, UrlEncode(name_.revision));
    DI_ASSIGN_OR_RETURN(const std::string text, transfer_.GetText(url, kHubListingSizeMax));
    Result<HubListing> listing = ParseHubListing(text);
    if (!listing.ok()) return listing.status().In(url);
    listing_ = *std::move(listing);
    snapshot_ = folder_ + "/snapshots/" + listing_.commit;
    return MakeDirectories(snapshot_);
  }

  // The files that decide whether the rest is worth fetching.
  Status FetchSmallFiles() {
    std::vector<HubFile> files;
    for (const char* name : kRequiredFiles) {
      DI_ASSIGN_OR_RETURN(const HubFile file, Listed(name));
      files.push_back(file);
    }
    for (const char* name : kOptionalFiles) {
      if (const HubFile* file = listing_.Find(name); file != nullptr) files.push_back(*file);
    }
    DI_RETURN_IF_ERROR(FetchAll(files));
    const std::string path = snapshot_ + "/config.json";
    DI_ASSIGN_OR_RETURN(const std::string config, ReadFile(path, kConfigSizeMax));
    const Result<ParsedConfig> parsed = ParseModelConfig(config);
    return parsed.ok() ? Status() : parsed.status().In(fmt::format("{}: config.json", name_.ToString()));
  }

  Status FetchShards() {
    if (listing_.Find(kShardIndexName) == nullptr) {
      DI_ASSIGN_OR_RETURN(const HubFile file, Listed(kSingleShardName));
      return FetchAll({file});
    }
    DI_RETURN_IF_ERROR(FetchAll({*listing_.Find(kShardIndexName)}));
    DI_ASSIGN_OR_RETURN(const ShardIndex index, ReadShardIndex(snapshot_ + "/" + kShardIndexName));
    std::vector<HubFile> files;
    for (const std::string& name : index.Files()) {
      DI_ASSIGN_OR_RETURN(const HubFile file, Listed(name));
      files.push_back(file);
    }
    return FetchAll(files);
  }

  Result<HubFile> Listed(const std::string& name) const {
    const HubFile* file = listing_.Find(name);
    if (file != nullptr) return *file;
    return Error(Code::kNotFound, "{}: the hub lists no {} (with size and hash)", name_.ToString(), name);
  }

  std::string BlobPath(const HubFile& file) const { return folder_ + "/blobs/" + file.hash; }

  Status FetchAll(const std::vector<HubFile>& files) {
    for (const HubFile& file : files) total_size_ += file.size;
    DI_RETURN_IF_ERROR(CheckSpace(files));
    for (const HubFile& file : files) {
      current_ = &file;
      const std::string url =
          fmt::format("{}/{}/resolve/{}/{}", endpoint_, name_.repository, listing_.commit, UrlEncode(file.name));
      const Status status = transfer_.GetFile(url, file, BlobPath(file));
      current_ = nullptr;
      DI_RETURN_IF_ERROR(status);
      DI_RETURN_IF_ERROR(Link(file));
      total_done_ += file.size;
    }
    return Status();
  }

  Status CheckSpace(const std::vector<HubFile>& files) const {
    int64_t needed = 0;
    for (const HubFile& file : files) {
      std::error_code ignored;
      if (fs::exists(BlobPath(file), ignored)) continue;
      const uintmax_t have = fs::file_size(BlobPath(file) + ".incomplete", ignored);
      needed += file.size - (ignored ? 0 : std::min(file.size, static_cast<int64_t>(have)));
    }
    std::error_code error;
    const fs::space_info space = fs::space(folder_, error);
    if (error || static_cast<uintmax_t>(needed) <= space.available) return Status();
    return Error(Code::kResourceExhausted, "{}: {} needs {} bytes more on this disk, {} are free", options_.model_dir,
                 name_.ToString(), needed, space.available);
  }

  // snapshots/<commit>/<name> -> ../../blobs/<hash>, replacing a link of an earlier run.
  Status Link(const HubFile& file) const {
    const std::string path = snapshot_ + "/" + file.name;
    const std::string temporary = path + ".link";
    std::error_code error;
    fs::remove(temporary, error);
    fs::create_symlink("../../blobs/" + file.hash, temporary, error);
    if (error) return FileError(error.value(), "link", temporary);
    fs::rename(temporary, path, error);
    return error ? FileError(error.value(), "rename to", path) : Status();
  }

  // Called for every piece of data; passes on ten reports a second.
  bool Report(int64_t file_bytes) {
    if (!options_.progress) return true;
    const auto now = std::chrono::steady_clock::now();
    if (now - reported_ < std::chrono::milliseconds(100)) return true;
    reported_ = now;
    DownloadProgress progress;
    progress.total_done = total_done_;
    progress.total_size = total_size_;
    if (current_ != nullptr) {
      progress.file = current_->name;
      progress.file_done = file_bytes;
      progress.file_size = current_->size;
      progress.total_done += file_bytes;
    }
    return options_.progress(progress);
  }

  const ModelName& name_;
  const HubOptions& options_;
  HubTransfer transfer_;
  std::string folder_;
  std::string endpoint_;
  HubListing listing_;
  std::string snapshot_;
  const HubFile* current_ = nullptr;
  int64_t total_done_ = 0;
  int64_t total_size_ = 0;
  std::chrono::steady_clock::time_point reported_;
};

}  // namespace

Result<std::string> DownloadModel(const ModelName& name, const HubOptions& options) {
  return Download(name, options).Run();
}

}  // namespace deepinfer::checkpoint
