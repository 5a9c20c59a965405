// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/parallel_encode.h"

#include <algorithm>
#include <atomic>
#include <system_error>
#include <thread>

namespace deepinfer {
namespace {

// A thread takes some 30 us to start; below this a part is encoded sooner than that pays.
constexpr size_t kPartBytesMin = kParallelBytesMin / 2;
// Parts for each thread: few enough to be long, enough that none waits long for the last.
constexpr size_t kPartsPerThread = 4;
constexpr int kThreadsMax = 64;
// How far to look for a safe cut before the next target is tried.
constexpr size_t kSearchBytes = 4 << 10;

struct Part {
  Status status;
  std::vector<TokenId> ids;
};

Status Join(const std::vector<Part>& parts, std::vector<TokenId>* ids) {
  size_t total = ids->size();
  for (const Part& part : parts) {
    DI_RETURN_IF_ERROR(part.status);
    total += part.ids.size();
  }
  ids->reserve(total);
  for (const Part& part : parts) ids->insert(ids->end(), part.ids.begin(), part.ids.end());
  return Status();
}

}  // namespace

std::vector<size_t> CutSafely(std::string_view text, size_t part_bytes, const std::function<bool(size_t)>& safe) {
  std::vector<size_t> ends;
  for (size_t target = part_bytes; target < text.size(); target += part_bytes) {
    const size_t search_end = std::min(text.size(), target + std::min(kSearchBytes, part_bytes));
    size_t cut = target;
    while (cut < search_end && !safe(cut)) ++cut;
    if (cut == search_end) continue;
    ends.push_back(cut);
    target = cut;
  }
  ends.push_back(text.size());
  return ends;
}

Status EncodeInParallel(std::string_view text, int threads, const std::function<bool(size_t)>& safe,
                        const std::function<Status(std::string_view, std::vector<TokenId>*)>& encode,
                        std::vector<TokenId>* ids) {
  threads = std::clamp(threads, 1, kThreadsMax);
  const size_t part_bytes = std::max(kPartBytesMin, text.size() / (threads * kPartsPerThread) + 1);
  const std::vector<size_t> ends = CutSafely(text, part_bytes, safe);
  std::vector<Part> parts(ends.size());
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i = next++; i < parts.size(); i = next++) {
      const size_t begin = i == 0 ? 0 : ends[i - 1];
      parts[i].ids.reserve((ends[i] - begin) / 3);
      parts[i].status = encode(text.substr(begin, ends[i] - begin), &parts[i].ids);
    }
  };
  std::vector<std::thread> helpers;
  const size_t num_helpers = std::min<size_t>(threads, parts.size()) - 1;
  try {
    while (helpers.size() < num_helpers) helpers.emplace_back(work);
  } catch (const std::system_error&) {
    // No more threads to be had: those that are there do the work.
  }
  work();
  for (std::thread& helper : helpers) helper.join();
  return Join(parts, ids);
}

}  // namespace deepinfer
