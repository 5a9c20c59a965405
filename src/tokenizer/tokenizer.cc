// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/tokenizer.h"

#include <bit>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <unordered_map>

#include "core/utf8.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/parallel_encode.h"
#include "tokenizer/piece_encoder.h"
#include "tokenizer/tokenizer_json.h"

namespace deepinfer {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

// Appends the characters of `bytes` with U+FFFD for each maximal subpart that is none, and returns what was used:
// all, or with `keep_truncated` all but a character that could still be completed.
size_t AppendLossy(std::string_view bytes, bool keep_truncated, std::string* text) {
  size_t position = 0;
  while (position < bytes.size()) {
    const size_t invalid = FindInvalidUtf8(bytes.substr(position));
    const size_t valid = std::min(invalid, bytes.size() - position);
    text->append(bytes.substr(position, valid));
    position += valid;
    if (position == bytes.size()) break;
    const Utf8Char c = DecodeUtf8(bytes.substr(position));
    if (c.truncated && keep_truncated) break;
    text->append(kReplacement);
    position += c.size;
  }
  return position;
}

// Whether `text` is UTF-8 throughout. Characters of one to three bytes are told apart here at 2 GB/s and more; the rest
// is left to FindInvalidUtf8.
bool IsUtf8(std::string_view text) {
  size_t i = 0;
  while (i + 8 <= text.size()) {
    uint64_t word;
    std::memcpy(&word, text.data() + i, 8);
    const auto low = static_cast<uint32_t>(word);
    if ((word & 0x8080808080808080u) == 0) {
      i += 8;
    } else if ((low & 0x80) == 0) {
      i += std::countr_zero(word & 0x8080808080808080u) >> 3;
    } else if ((low & 0xC0E0) == 0x80C0 && (low & 0x1E) != 0) {
      i += 2;
    } else if ((low & 0xC0C0F0) == 0x8080E0 && (low & 0x200F) != 0 && (low & 0x200F) != 0x200D) {
      i += 3;  // neither overlong nor a surrogate
    } else {
      const Utf8Char c = DecodeUtf8(text.substr(i));
      if (!c.valid) return false;
      i += c.size;
    }
  }
  return FindInvalidUtf8(text.substr(i)) == std::string_view::npos;
}

Result<std::string> ReadFile(const std::string& path, size_t bytes_max) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return Error(Code::kNotFound, "{}: cannot open: {}", path, std::strerror(errno));
  const std::streamoff size = file.tellg();
  if (size < 0 || !file.seekg(0)) return Error(Code::kDataLoss, "{}: cannot read", path);
  if (static_cast<uint64_t>(size) > bytes_max) {
    return Error(Code::kResourceExhausted, "{}: {} bytes are over the limit of {}", path, size, bytes_max);
  }
  std::string content(static_cast<size_t>(size), '\0');
  if (!file.read(content.data(), size)) return Error(Code::kDataLoss, "{}: cannot read {} bytes", path, size);
  return content;
}

}  // namespace

struct Tokenizer::Impl {
  Impl(TokenizerSpec the_spec, std::unique_ptr<PreTokenizer> splitter)
      : spec(std::move(the_spec)), encoder(spec, std::move(splitter)), added(spec.added_tokens) {
    ids.reserve(spec.spellings.size());
    for (size_t id = 0; id < spec.spellings.size(); ++id) {
      if (!spec.spellings[id].empty()) ids.emplace(spec.spellings[id], static_cast<TokenId>(id));
    }
    is_added.resize(spec.spellings.size());
    is_special.resize(spec.spellings.size());
    for (const AddedToken& token : spec.added_tokens) {
      is_added[token.id] = true;
      is_special[token.id] = token.special;
    }
  }

  bool Has(TokenId id) const { return id >= 0 && static_cast<size_t>(id) < spec.bytes.size(); }

  Status Append(std::string_view text, bool added_tokens, std::vector<TokenId>* out) const {
    std::string repaired;
    if (!IsUtf8(text)) {
      AppendLossy(text, false, &repaired);
      text = repaired;
    }
    const auto plain = [&](std::string_view piece) { return encoder.Append(piece, out); };
    return added_tokens ? added.Scan(text, plain, [&](TokenId id) { out->push_back(id); }) : plain(text);
  }

  // Whether the ids of `text` are those of its parts before and from `offset` on.
  bool SafeCut(std::string_view text, size_t offset, bool added_tokens) const {
    size_t before = offset - 1;
    while (before > 0 && offset - before < 4 && (static_cast<uint8_t>(text[before]) & 0xC0) == 0x80) --before;
    const Utf8Char c = DecodeUtf8(text.substr(before));
    if (!c.valid || before + c.size != offset || !DecodeUtf8(text.substr(offset)).valid) return false;
    if (added_tokens && !added.SafeCut(text[offset - 1], text[offset])) return false;
    return encoder.pre_tokenizer().SafeCut(text, offset);
  }

  TokenizerSpec spec;
  PieceEncoder encoder;
  AddedTokenMatcher added;
  std::unordered_map<std::string_view, TokenId> ids;
  std::vector<bool> is_added;
  std::vector<bool> is_special;
};

Tokenizer::Tokenizer(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::~Tokenizer() = default;

Result<std::shared_ptr<const Tokenizer>> Tokenizer::Load(const std::string& path, const TokenizerLimits& limits) {
  DI_ASSIGN_OR_RETURN(const std::string content, ReadFile(path, limits.file_bytes_max));
  return FromBytes(content, path, limits);
}

Result<std::shared_ptr<const Tokenizer>> Tokenizer::FromBytes(std::string_view json, std::string_view name,
                                                              const TokenizerLimits& limits) {
  DI_ASSIGN_OR_RETURN(TokenizerSpec spec, ParseTokenizerJson(json, name, limits));
  Result<std::unique_ptr<PreTokenizer>> splitter = MakePreTokenizer(spec.split_patterns);
  if (!splitter.ok()) return splitter.status().In("pre_tokenizer").In(name);
  auto impl = std::make_unique<const Impl>(std::move(spec), *std::move(splitter));
  return std::shared_ptr<const Tokenizer>(new Tokenizer(std::move(impl)));
}

Status Tokenizer::AppendEncoded(std::string_view text, const EncodeOptions& options, std::vector<TokenId>* ids) const {
  if (text.size() > kEncodeBytesMax) {
    return Error(Code::kResourceExhausted, "text of {} bytes is over the limit of {}", text.size(), kEncodeBytesMax);
  }
  const size_t old_size = ids->size();
  const auto encode = [&](std::string_view part, std::vector<TokenId>* out) {
    return impl_->Append(part, options.added_tokens, out);
  };
  const auto safe = [&](size_t offset) { return impl_->SafeCut(text, offset, options.added_tokens); };
  const bool parallel = options.threads > 1 && text.size() >= kParallelBytesMin;
  const Status status = parallel ? EncodeInParallel(text, options.threads, safe, encode, ids) : encode(text, ids);
  if (!status.ok()) ids->resize(old_size);
  return status;
}

Result<std::vector<TokenId>> Tokenizer::Encode(std::string_view text, const EncodeOptions& options) const {
  std::vector<TokenId> ids;
  DI_RETURN_IF_ERROR(AppendEncoded(text, options, &ids));
  return ids;
}

Result<std::vector<TokenId>> Tokenizer::EncodePlain(std::string_view text) const {
  return Encode(text, {.added_tokens = false});
}

std::string Tokenizer::Decode(std::span<const TokenId> ids, bool skip_special) const {
  std::string bytes;
  for (const TokenId id : ids) {
    if (!skip_special || !IsSpecial(id)) bytes += TokenBytes(id);
  }
  if (FindInvalidUtf8(bytes) == std::string_view::npos) return bytes;
  std::string text;
  AppendLossy(bytes, false, &text);
  return text;
}

TokenId Tokenizer::vocab_size() const { return static_cast<TokenId>(impl_->spec.bytes.size()); }

std::optional<TokenId> Tokenizer::TokenToId(std::string_view token) const {
  const auto it = impl_->ids.find(token);
  if (it == impl_->ids.end()) return std::nullopt;
  return it->second;
}

std::optional<std::string_view> Tokenizer::IdToToken(TokenId id) const {
  if (!impl_->Has(id) || impl_->spec.spellings[id].empty()) return std::nullopt;
  return impl_->spec.spellings[id];
}

std::string_view Tokenizer::TokenBytes(TokenId id) const {
  return impl_->Has(id) ? std::string_view(impl_->spec.bytes[id]) : std::string_view();
}

bool Tokenizer::IsSpecial(TokenId id) const { return impl_->Has(id) && impl_->is_special[id]; }

bool Tokenizer::IsAdded(TokenId id) const { return impl_->Has(id) && impl_->is_added[id]; }

std::span<const AddedToken> Tokenizer::added_tokens() const { return impl_->spec.added_tokens; }

void IncrementalDecoder::Push(TokenId id, std::string* text) {
  if (skip_special_ && tokenizer_->IsSpecial(id)) return;
  const std::string_view bytes = tokenizer_->TokenBytes(id);
  if (pending_.empty()) {
    const size_t used = AppendLossy(bytes, true, text);
    pending_.assign(bytes.substr(used));
    return;
  }
  pending_ += bytes;
  pending_.erase(0, AppendLossy(pending_, true, text));
}

void IncrementalDecoder::Flush(std::string* text) {
  AppendLossy(pending_, false, text);
  pending_.clear();
}

}  // namespace deepinfer
