// SPDX-License-Identifier: Apache-2.0
#include "grammar/unicode.h"

#include <unicode/uset.h>

#include <algorithm>

namespace deepinfer::grammar {
namespace {

// Splits [lo, hi] into pieces whose UTF-8 forms are products of byte ranges (the usual split at continuation-byte
// borders). REQUIRES: both ends have `size` bytes.
void AppendSequences(ExprPool* pool, uint32_t lo, uint32_t hi, int size, std::vector<ExprId>* out) {
  for (int i = 1; i < size; ++i) {
    const uint32_t mask = (1u << (6 * i)) - 1;
    if ((lo & ~mask) == (hi & ~mask)) continue;
    if ((lo & mask) != 0) {
      AppendSequences(pool, lo, lo | mask, size, out);
      AppendSequences(pool, (lo | mask) + 1, hi, size, out);
      return;
    }
    if ((hi & mask) != mask) {
      AppendSequences(pool, lo, (hi & ~mask) - 1, size, out);
      AppendSequences(pool, hi & ~mask, hi, size, out);
      return;
    }
  }
  static constexpr uint32_t kLead[] = {0, 0, 0xC0, 0xE0, 0xF0};
  ExprId sequence = ExprPool::kEpsilon;
  for (int i = 0; i < size; ++i) {
    const bool is_lead = i == size - 1;
    const uint32_t mark = is_lead ? kLead[size] : 0x80;
    const uint32_t keep = is_lead ? 0xFF : 0x3F;
    ByteSet set;
    for (uint32_t b = (lo >> (6 * i)) & keep; b <= ((hi >> (6 * i)) & keep); ++b) set.set(mark | b);
    sequence = pool->Concat(pool->Bytes(set), sequence);
  }
  out->push_back(sequence);
}

}  // namespace

CodePointSet& CodePointSet::Add(uint32_t first, uint32_t last) {
  if (first <= last) ranges_.emplace_back(first, last);
  return *this;
}

CodePointSet& CodePointSet::Add(const CodePointSet& other) {
  ranges_.insert(ranges_.end(), other.ranges_.begin(), other.ranges_.end());
  return *this;
}

std::vector<CodePointSet::Range> CodePointSet::Ranges() const {
  std::vector<Range> sorted;
  for (const Range& range : ranges_) {
    if (range.first < 0xD800) sorted.emplace_back(range.first, std::min(range.second, 0xD7FFu));
    if (range.second > 0xDFFF) sorted.emplace_back(std::max(range.first, 0xE000u), range.second);
  }
  std::sort(sorted.begin(), sorted.end());
  std::vector<Range> merged;
  for (const Range& range : sorted) {
    if (!merged.empty() && range.first <= merged.back().second + 1) {
      merged.back().second = std::max(merged.back().second, range.second);
    } else {
      merged.push_back(range);
    }
  }
  return merged;
}

CodePointSet CodePointSet::Complement() const {
  CodePointSet result;
  uint32_t next = 0;
  for (const Range& range : Ranges()) {
    if (range.first > next) result.Add(next, range.first - 1);
    next = range.second + 1;
  }
  if (next <= 0x10FFFF) result.Add(next, 0x10FFFF);
  return result;
}

Result<CodePointSet> UnicodeProperty(std::string_view name) {
  std::u16string pattern = u"\\p{";
  for (char c : name) {
    const bool fine = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '=';
    if (!fine || name.size() > 64) return Error(Code::kInvalidArgument, "bad Unicode property name");
    pattern.push_back(static_cast<char16_t>(c));
  }
  pattern.push_back(u'}');
  UErrorCode code = U_ZERO_ERROR;
  USet* set = uset_openPattern(pattern.data(), static_cast<int32_t>(pattern.size()), &code);
  if (U_FAILURE(code)) {
    uset_close(set);
    return Error(Code::kInvalidArgument, "unknown Unicode property \"{}\"", name);
  }
  CodePointSet result;
  for (int32_t i = 0; i < uset_getItemCount(set); ++i) {
    UChar32 first = 0, last = 0;
    code = U_ZERO_ERROR;
    if (uset_getItem(set, i, &first, &last, nullptr, 0, &code) == 0) {
      result.Add(static_cast<uint32_t>(first), static_cast<uint32_t>(last));
    }
  }
  uset_close(set);
  return result;
}

ExprId Utf8Class(ExprPool* pool, const CodePointSet& set) {
  static constexpr uint32_t kLast[] = {0x7F, 0x7FF, 0xFFFF, 0x10FFFF};
  std::vector<ExprId> sequences;
  for (const auto& [first, last] : set.Ranges()) {
    uint32_t begin = 0;
    for (int size = 1; size <= 4; ++size) {
      const uint32_t lo = std::max(first, begin), hi = std::min(last, kLast[size - 1]);
      if (lo <= hi) AppendSequences(pool, lo, hi, size, &sequences);
      begin = kLast[size - 1] + 1;
    }
  }
  return pool->Or(std::move(sequences));
}

}  // namespace deepinfer::grammar
