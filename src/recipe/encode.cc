// SPDX-License-Identifier: Apache-2.0
#include "recipe/encode.h"

#include <list>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

#include "recipe/render.h"

namespace deepinfer::recipe {
namespace {

// Shorter texts are encoded faster than found.
constexpr size_t kCacheTextMin = 64;

constexpr std::array kNeeded = {Control::kBos,       Control::kEos,  Control::kThinkStart, Control::kThinkEnd,
                                Control::kUser,      Control::kDsml, Control::kAssistant};

std::optional<TokenId> FindAdded(const Tokenizer& tokenizer, std::string_view spelling) {
  const auto id = tokenizer.TokenToId(spelling);
  return id && tokenizer.IsAdded(*id) ? id : std::nullopt;
}

}  // namespace

// Least recently used texts go first. Keyed by the text itself, so that no two texts can be taken for each other.
class PromptEncoder::Cache {
 public:
  explicit Cache(size_t bytes_max) : bytes_max_(bytes_max) {}

  bool Append(std::string_view text, std::vector<TokenId>* ids) {
    const std::lock_guard lock(mutex_);
    const auto found = index_.find(text);
    if (found == index_.end()) return false;
    entries_.splice(entries_.begin(), entries_, found->second);
    ids->insert(ids->end(), found->second->ids.begin(), found->second->ids.end());
    return true;
  }

  void Insert(std::string_view text, const TokenId* begin, const TokenId* end) {
    Entry entry{std::string(text), {begin, end}};
    const size_t size = Size(entry);
    if (size > bytes_max_) return;
    const std::lock_guard lock(mutex_);
    if (index_.contains(text)) return;  // another thread was faster
    while (bytes_ + size > bytes_max_) {
      bytes_ -= Size(entries_.back());
      index_.erase(entries_.back().text);
      entries_.pop_back();
    }
    entries_.push_front(std::move(entry));
    index_.emplace(entries_.front().text, entries_.begin());
    bytes_ += size;
  }

  size_t bytes() const {
    const std::lock_guard lock(mutex_);
    return bytes_;
  }

 private:
  struct Entry {
    std::string text;
    std::vector<TokenId> ids;
  };
  static size_t Size(const Entry& entry) {
    return entry.text.size() + entry.ids.size() * sizeof(TokenId) + 128;  // and about what list and index add
  }

  const size_t bytes_max_;
  mutable std::mutex mutex_;
  std::list<Entry> entries_;  // most recently used first
  std::unordered_map<std::string_view, std::list<Entry>::iterator> index_;
  size_t bytes_ = 0;
};

PromptEncoder::PromptEncoder(std::shared_ptr<const Tokenizer> tokenizer, const EncoderOptions& options)
    : tokenizer_(std::move(tokenizer)), options_(options), cache_(std::make_unique<Cache>(options.cache_bytes)) {
  for (size_t i = 0; i < kNumControls; ++i) ids_[i] = FindAdded(*tokenizer_, Spelling(static_cast<Control>(i)));
  auto& image = ids_[static_cast<size_t>(Control::kImage)];
  for (const std::string_view spelling : kImageSpellings) {
    if (!image) image = FindAdded(*tokenizer_, spelling);
  }
}

PromptEncoder::~PromptEncoder() = default;

Result<std::shared_ptr<PromptEncoder>> PromptEncoder::Make(std::shared_ptr<const Tokenizer> tokenizer,
                                                           const EncoderOptions& options) {
  std::shared_ptr<PromptEncoder> encoder(new PromptEncoder(std::move(tokenizer), options));
  for (const Control control : kNeeded) {
    if (!encoder->Id(control)) {
      return Error(Code::kDataLoss, "the tokenizer has no added token \"{}\", which every prompt needs",
                   Spelling(control));
    }
  }
  return encoder;
}

size_t PromptEncoder::cached_bytes() const { return cache_->bytes(); }

Status PromptEncoder::AppendText(std::string_view text, std::vector<TokenId>* ids) const {
  const bool cached = options_.cache_bytes > 0 && text.size() >= kCacheTextMin;
  if (cached && cache_->Append(text, ids)) return {};
  const size_t before = ids->size();
  DI_RETURN_IF_ERROR(
      tokenizer_->AppendEncoded(text, {.added_tokens = false, .threads = options_.threads}, ids));
  if (cached) cache_->Insert(text, ids->data() + before, ids->data() + ids->size());
  return {};
}

Result<std::vector<TokenId>> PromptEncoder::Encode(const Prompt& prompt) const {
  std::vector<TokenId> ids;
  for (const Segment& segment : prompt.segments()) {
    if (!segment.control) {
      DI_RETURN_IF_ERROR(AppendText(segment.text, &ids));
      continue;
    }
    const auto id = Id(*segment.control);
    if (!id) {
      return Error(Code::kFailedPrecondition, "the tokenizer has no added token \"{}\", which this prompt needs",
                   Spelling(*segment.control));
    }
    ids.push_back(*id);
  }
  return ids;
}

Prompt RenderRequest(const Request& request, size_t index) {
  if (request.raw.empty()) return RenderConversation(request.conversation, request.version);
  Prompt prompt;
  prompt.Add(Control::kBos);
  if (request.suffix) prompt.Add(Control::kFimBegin);
  prompt.Add(request.raw[index].text);
  if (request.suffix) {
    prompt.Add(Control::kFimHole);
    prompt.Add(*request.suffix);
    prompt.Add(Control::kFimEnd);
  }
  return prompt;
}

Result<std::vector<TokenId>> EncodeRequest(const Request& request, const PromptEncoder& encoder, size_t index) {
  DI_ASSIGN_OR_RETURN(std::vector<TokenId> ids, encoder.Encode(RenderRequest(request, index)));
  if (request.raw.empty()) return ids;
  const std::vector<int32_t>& raw = request.raw[index].ids;
  for (const TokenId id : raw) {
    if (id >= encoder.tokenizer().vocab_size()) {
      return Error(Code::kInvalidArgument, "/prompt: the token id {} is not in the vocabulary of {}", id,
                   encoder.tokenizer().vocab_size());
    }
    // A client that already wrote the begin-of-sentence token does not get a second one.
    if (ids.size() == 1 && id == ids[0] && &id == raw.data()) continue;
    ids.push_back(id);
  }
  return ids;
}

}  // namespace deepinfer::recipe
