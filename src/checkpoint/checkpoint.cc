// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/checkpoint.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <set>

#include "checkpoint/expected.h"
#include "checkpoint/printable.h"
#include "checkpoint/shard_index.h"

namespace deepinfer::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr size_t kShardsMax = 4096;  // as many as can be mapped at a time
constexpr size_t kListedMax = 10;    // names in one message

std::string BaseName(const std::string& path) { return fs::path(path).filename().string(); }

// "a, b, c and 12 more"
std::string ListNames(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kListedMax); ++i) {
    if (i > 0) text += ", ";
    text += Printable(names[i]);
  }
  if (names.size() > kListedMax) text += fmt::format(" and {} more", names.size() - kListedMax);
  return text;
}

// Allowed forms of the weight and of its scale, as a message shows them and as the check compares them.
struct Form {
  DType dtype;
  Shape shape;
  std::optional<Shape> scale;
};

std::vector<Form> FormsOf(const ExpectedTensor& expected) {
  const Shape& shape = expected.shape;
  if (expected.storage == Storage::kF32) return {{DType::kF32, shape, {}}};
  std::vector<Form> forms;
  if (expected.is_matrix() && shape[1] % kScaleBlock == 0) {
    const int64_t rows = shape[0];
    const int64_t blocks = shape[1] / kScaleBlock;
    const int64_t tiles = (rows + kScaleBlock - 1) / kScaleBlock;
    if (expected.storage == Storage::kFP8Tiles) forms.push_back({DType::kF8E4M3, shape, Shape({tiles, blocks})});
    if (expected.storage == Storage::kFP8Rows) forms.push_back({DType::kF8E4M3, shape, Shape({rows, blocks})});
    if (expected.storage == Storage::kFP4) {
      forms.push_back({DType::kI8, Shape({rows, shape[1] / 2}), Shape({rows, blocks})});
    }
  }
  forms.push_back({DType::kBF16, shape, {}});
  return forms;
}

std::string ShowForms(const std::vector<Form>& forms) {
  std::string text;
  for (const Form& form : forms) {
    if (!text.empty()) text += " or ";
    text += fmt::format("{} {}", DTypeName(form.dtype), form.shape.ToString());
  }
  return text;
}

size_t AlignmentOf(DType dtype) { return DTypeSize(dtype); }

}  // namespace

class CheckpointOpener {
 public:
  explicit CheckpointOpener(const std::string& directory) { checkpoint_.directory_ = directory; }

  Result<Checkpoint> Open() {
    DI_RETURN_IF_ERROR(ReadConfig());
    DI_RETURN_IF_ERROR(OpenShards());
    DI_RETURN_IF_ERROR(TieEmbeddings());
    DI_RETURN_IF_ERROR(BindExpected());
    WarnUnexpected();
    Realign();
    return std::move(checkpoint_);
  }

 private:
  std::string PathOf(const std::string& name) const { return (fs::path(checkpoint_.directory_) / name).string(); }
  bool Exists(const std::string& name) const {
    std::error_code ignored;
    return fs::exists(PathOf(name), ignored);
  }

  Status ReadConfig() {
    std::error_code error;
    if (!fs::is_directory(checkpoint_.directory_, error)) {
      return Error(Code::kNotFound, "{}: no such directory", checkpoint_.directory_);
    }
    const std::string path = PathOf("config.json");
    DI_ASSIGN_OR_RETURN(checkpoint_.config_text_, ReadFile(path, kConfigSizeMax));
    Result<ParsedConfig> parsed = ParseModelConfig(checkpoint_.config_text_);
    if (!parsed.ok()) return parsed.status().In(path);
    checkpoint_.config_ = std::move(parsed->config);
    if (!parsed->unknown_keys.empty()) {
      checkpoint_.warnings_.push_back(
          fmt::format("config.json: unknown keys, not used: {}", ListNames(parsed->unknown_keys)));
    }
    return Status();
  }

  Status OpenShards() {
    if (!Exists(kShardIndexName)) {
      if (!Exists(kSingleShardName)) return NoWeights();
      DI_RETURN_IF_ERROR(OpenShard(kSingleShardName, nullptr));
      WarnStrayFiles({kSingleShardName});
      return Status();
    }
    const std::string index_path = PathOf(kShardIndexName);
    DI_ASSIGN_OR_RETURN(const ShardIndex index, ReadShardIndex(index_path));
    const std::set<std::string> files = index.Files();
    if (files.size() > kShardsMax) {
      return Error(Code::kResourceExhausted, "{}: {} shards, more than {}", index_path, files.size(), kShardsMax);
    }
    for (const std::string& file : files) DI_RETURN_IF_ERROR(OpenShard(file, &index));
    DI_RETURN_IF_ERROR(CheckIndex(index, index_path));
    WarnStrayFiles(files);
    return Status();
  }

  Status NoWeights() const {
    std::string hint;
    std::error_code ignored;
    for (const fs::directory_entry& entry : fs::directory_iterator(checkpoint_.directory_, ignored)) {
      if (entry.path().extension() == ".incomplete") {
        hint = fmt::format("; {} is an unfinished download", entry.path().filename().string());
      }
    }
    return Error(Code::kNotFound, "{}: neither {} nor {} in it{}", checkpoint_.directory_, kShardIndexName,
                 kSingleShardName, hint);
  }

  // `index` may be null: a single file, all of whose tensors count.
  Status OpenShard(const std::string& name, const ShardIndex* index) {
    if (index != nullptr && !Exists(name)) {
      return Error(Code::kNotFound, "{}: missing shard, named by {}", PathOf(name), kShardIndexName);
    }
    DI_ASSIGN_OR_RETURN(SafetensorsFile shard, SafetensorsFile::Open(PathOf(name)));
    std::vector<std::string> not_indexed;
    for (const TensorInfo& info : shard.header().tensors) {
      if (index != nullptr) {
        const auto found = index->file_of.find(info.name);
        if (found == index->file_of.end()) {
          not_indexed.push_back(info.name);
          continue;
        }
        if (found->second != name) {
          return Error(Code::kDataLoss, "{}: is in {}, but {} places it in {}", Printable(info.name), name,
                       kShardIndexName, found->second);
        }
      }
      checkpoint_.tensors_.emplace(info.name, Checkpoint::Stored{shard.View(info), checkpoint_.shards_.size()});
    }
    if (!not_indexed.empty()) {
      checkpoint_.warnings_.push_back(
          fmt::format("{}: tensors that the index does not name, not used: {}", name, ListNames(not_indexed)));
    }
    checkpoint_.shards_.push_back(std::move(shard));
    return Status();
  }

  Status CheckIndex(const ShardIndex& index, const std::string& index_path) const {
    int64_t total = 0;
    for (const auto& [name, file] : index.file_of) {
      const auto found = checkpoint_.tensors_.find(name);
      if (found == checkpoint_.tensors_.end()) {
        return Error(Code::kDataLoss, "{}: places {} in {}, which has no such tensor", index_path, Printable(name),
                     file);
      }
      total += static_cast<int64_t>(found->second.view.size_bytes());
    }
    if (index.total_size && *index.total_size != total) {
      return Error(Code::kDataLoss, "{}: total_size: expected {} bytes of tensors, found {} in the shards", index_path,
                   *index.total_size, total);
    }
    return Status();
  }

  void WarnStrayFiles(const std::set<std::string>& used) {
    std::vector<std::string> stray;
    std::error_code ignored;
    for (const fs::directory_entry& entry : fs::directory_iterator(checkpoint_.directory_, ignored)) {
      const std::string name = entry.path().filename().string();
      const bool weights = name.find(".safetensors") != std::string::npos && name != kShardIndexName;
      if (weights && !used.contains(name)) stray.push_back(name);
    }
    if (stray.empty()) return;
    std::sort(stray.begin(), stray.end());
    checkpoint_.warnings_.push_back(
        fmt::format("files that are not part of the checkpoint, not read: {}", ListNames(stray)));
  }

  // A tied head may be absent, or be the same bytes; anything else contradicts the config.
  Status TieEmbeddings() {
    if (!checkpoint_.config_.tie_word_embeddings) return Status();
    const auto embed = checkpoint_.tensors_.find("embed.weight");
    if (embed == checkpoint_.tensors_.end()) return Status();  // reported with the other missing ones
    const auto head = checkpoint_.tensors_.find("head.weight");
    if (head == checkpoint_.tensors_.end()) {
      checkpoint_.tensors_.emplace("head.weight", embed->second);
      return Status();
    }
    const TensorView& a = embed->second.view;
    const TensorView& b = head->second.view;
    const bool equal = a.dtype == b.dtype && a.shape == b.shape &&
                       (a.size_bytes() == 0 || std::memcmp(a.data, b.data, a.size_bytes()) == 0);
    if (equal) return Status();
    return Error(Code::kDataLoss,
                 "head.weight: differs from embed.weight, but config.json says tie_word_embeddings; "
                 "set it to false if the head is meant");
  }

  Status BindExpected() {
    std::map<Part, std::vector<std::string>> missing;
    std::map<Part, size_t> present;
    std::string draft_problem;
    for (const ExpectedTensor& expected : ExpectedTensors(checkpoint_.config_)) {
      const Status status = BindOne(expected, &missing[expected.part], &present[expected.part]);
      if (!status.ok() && expected.part != Part::kDraft) return status;
      if (!status.ok() && draft_problem.empty()) draft_problem = status.message();
    }
    checkpoint_.has_draft_ = CheckDraft(draft_problem, &missing[Part::kDraft], present);
    checkpoint_.has_vision_ = CheckPart(Part::kVision, "image encoder (vision.*)", &missing, present);
    std::vector<std::string> all;
    for (const auto& [part, names] : missing) all.insert(all.end(), names.begin(), names.end());
    if (all.empty()) return Status();
    const std::vector<std::string> unexpected = Unexpected();
    return Error(Code::kNotFound, "{}: {} missing tensors: {}{}", checkpoint_.directory_, all.size(), ListNames(all),
                 unexpected.empty()
                     ? std::string()
                     : fmt::format("; {} unexpected ones: {}", unexpected.size(), ListNames(unexpected)));
  }

  // Whether the draft model can be used. Answers do not need it: whatever is wrong with it is a warning.
  bool CheckDraft(const std::string& problem, std::vector<std::string>* missing, const std::map<Part, size_t>& present) {
    const auto found = present.find(Part::kDraft);
    if (found == present.end()) return false;  // the config has none
    std::string& why = checkpoint_.draft_problem_;
    if (found->second == 0) {
      why = "no draft model (mtp.*) in the files, although config.json describes one";
    } else if (!missing->empty()) {
      why = fmt::format("the draft model is not used: {} missing tensors: {}", missing->size(), ListNames(*missing));
    } else if (!problem.empty()) {
      why = fmt::format("the draft model is not used: {}", problem);
    }
    missing->clear();
    if (!why.empty()) checkpoint_.warnings_.push_back(why);
    return why.empty();
  }

  // Whether a part is there. One that is absent as a whole is a warning, not an error.
  bool CheckPart(Part part, std::string_view what, std::map<Part, std::vector<std::string>>* missing,
                 const std::map<Part, size_t>& present) {
    const auto found = present.find(part);
    if (found == present.end()) return false;  // the config has no such part
    if (found->second > 0) return true;
    (*missing)[part].clear();
    checkpoint_.warnings_.push_back(fmt::format("no {} in the files, although config.json describes one", what));
    return false;
  }

  Status BindOne(const ExpectedTensor& expected, std::vector<std::string>* missing, size_t* present) {
    const std::string name = expected.weight_name();
    used_.insert(name);
    const auto weight = checkpoint_.tensors_.find(name);
    if (weight == checkpoint_.tensors_.end()) {
      missing->push_back(name);
      return Status();
    }
    ++*present;
    const std::vector<Form> forms = FormsOf(expected);
    const TensorView& view = weight->second.view;
    const auto form = std::find_if(forms.begin(), forms.end(), [&](const Form& candidate) {
      return candidate.dtype == view.dtype && candidate.shape == view.shape;
    });
    if (form == forms.end()) return Mismatch(name, ShowForms(forms), weight->second);
    if (!expected.is_matrix()) return Status();
    return BindScale(expected, *form, missing);
  }

  Status BindScale(const ExpectedTensor& expected, const Form& form, std::vector<std::string>* missing) {
    const std::string name = expected.scale_name();
    const auto scale = checkpoint_.tensors_.find(name);
    if (!form.scale) {
      if (scale == checkpoint_.tensors_.end()) return Status();
      return Error(Code::kDataLoss, "{}: a scale in {}, but {} is BF16, which has none", name, ShardName(scale->second),
                   expected.weight_name());
    }
    used_.insert(name);
    if (scale == checkpoint_.tensors_.end()) {
      missing->push_back(name);
      return Status();
    }
    const TensorView& view = scale->second.view;
    if (view.dtype == DType::kF8E8M0 && view.shape == *form.scale) return Status();
    return Mismatch(name, fmt::format("F8_E8M0 {}", form.scale->ToString()), scale->second);
  }

  std::string ShardName(const Checkpoint::Stored& stored) const {
    return BaseName(checkpoint_.shards_[stored.shard].path());
  }

  Status Mismatch(const std::string& name, const std::string& expected, const Checkpoint::Stored& found) const {
    return Error(Code::kDataLoss, "{}: expected {}, found {} {} in {}", name, expected, DTypeName(found.view.dtype),
                 found.view.shape.ToString(), ShardName(found));
  }

  std::vector<std::string> Unexpected() const {
    std::vector<std::string> names;
    for (const auto& [name, stored] : checkpoint_.tensors_) {
      if (!used_.contains(name)) names.push_back(name);
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  void WarnUnexpected() {
    const std::vector<std::string> names = Unexpected();
    if (names.empty()) return;
    checkpoint_.warnings_.push_back(fmt::format("{} unexpected tensors, not used: {}", names.size(), ListNames(names)));
  }

  // The format promises no alignment, C++ code needs it. Published files are aligned: this copies nothing there.
  void Realign() {
    for (const std::string& name : used_) {
      const auto found = checkpoint_.tensors_.find(name);
      if (found == checkpoint_.tensors_.end()) continue;
      TensorView& view = found->second.view;
      if (reinterpret_cast<uintptr_t>(view.data) % AlignmentOf(view.dtype) == 0) continue;
      auto copy = std::make_unique<std::byte[]>(view.size_bytes());
      std::memcpy(copy.get(), view.data, view.size_bytes());
      view.data = copy.get();
      checkpoint_.realigned_.push_back(std::move(copy));
    }
  }

  Checkpoint checkpoint_;
  std::set<std::string> used_;  // tensors that the config calls for
};

Result<Checkpoint> Checkpoint::Open(const std::string& directory) { return CheckpointOpener(directory).Open(); }

const TensorView* Checkpoint::Find(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second.view;
}

TensorView Checkpoint::Tensor(std::string_view name) const {
  const TensorView* view = Find(name);
  DI_CHECK(view != nullptr);
  return *view;
}

StoredMatrix Checkpoint::Matrix(std::string_view name) const {
  const TensorView weight = Tensor(fmt::format("{}.weight", name));
  DI_CHECK(weight.shape.rank() == 2);
  StoredMatrix matrix;
  matrix.rows = weight.shape[0];
  matrix.columns = weight.shape[1];
  matrix.weight = weight.data;
  if (weight.dtype == DType::kBF16) return matrix;
  const TensorView scale = Tensor(fmt::format("{}.scale", name));
  matrix.scale = scale.data;
  if (weight.dtype == DType::kI8) {
    matrix.format = StoredMatrix::Format::kFP4;
    matrix.columns *= 2;
    return matrix;
  }
  DI_CHECK(weight.dtype == DType::kF8E4M3);
  const bool tiles = scale.shape[0] == (matrix.rows + kScaleBlock - 1) / kScaleBlock;
  matrix.format = tiles ? StoredMatrix::Format::kFP8 : StoredMatrix::Format::kFP8Rows;
  return matrix;
}

Status Checkpoint::CheckIntact() const {
  for (const SafetensorsFile& shard : shards_) DI_RETURN_IF_ERROR(shard.file().CheckIntact());
  return Status();
}

}  // namespace deepinfer::checkpoint
