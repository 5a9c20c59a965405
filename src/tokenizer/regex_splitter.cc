// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/regex_splitter.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "core/utf8.h"
#include "tokenizer/regex_translate.h"

namespace deepinfer {
namespace {

struct FreePcre {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
  void operator()(pcre2_compile_context* context) const { pcre2_compile_context_free(context); }
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
  void operator()(pcre2_jit_stack* stack) const { pcre2_jit_stack_free(stack); }
};
template <typename T>
using Pcre = std::unique_ptr<T, FreePcre>;

// PCRE2's defaults end on 10 million spaces. These allow for the longest text of one class, yet a pattern that
// backtracks without end stops (after some seconds).
constexpr uint32_t kMatchLimit = 4'000'000'000;
constexpr uint32_t kHeapLimitKiB = 4 << 20;
constexpr size_t kJitStackBytesMax = 64 << 20;

std::string PcreMessage(int error) {
  PCRE2_UCHAR text[256] = {};
  pcre2_get_error_message(error, text, sizeof(text));
  return reinterpret_cast<const char*>(text);
}

Result<Pcre<pcre2_code>> Compile(const std::string& pattern) {
  DI_ASSIGN_OR_RETURN(const std::string translated, TranslateRegex(pattern));
  const Pcre<pcre2_compile_context> context(pcre2_compile_context_create(nullptr));
  DI_CHECK(context != nullptr);
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE offset = 0;
  // In Ruby syntax ^ and $ are always those of lines.
  Pcre<pcre2_code> code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                                      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error,
                                      &offset, context.get()));
  if (code == nullptr) return Error(Code::kDataLoss, "pattern {}: {}", pattern, PcreMessage(error));
  // Without JIT (some platforms have none) the interpreter runs the same pattern.
  pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);
  return code;
}

// What one Split() call needs of PCRE2.
struct Matcher {
  Matcher()
      : data(pcre2_match_data_create(1, nullptr)),
        context(pcre2_match_context_create(nullptr)),
        stack(pcre2_jit_stack_create(64 << 10, kJitStackBytesMax, nullptr)) {
    DI_CHECK(data != nullptr && context != nullptr);
    pcre2_set_match_limit(context.get(), kMatchLimit);
    pcre2_set_depth_limit(context.get(), kMatchLimit);
    pcre2_set_heap_limit(context.get(), kHeapLimitKiB);
    if (stack != nullptr) pcre2_jit_stack_assign(context.get(), nullptr, stack.get());
  }
  Pcre<pcre2_match_data> data;
  Pcre<pcre2_match_context> context;
  Pcre<pcre2_jit_stack> stack;
};

class RegexSplitter : public PreTokenizer {
 public:
  explicit RegexSplitter(std::vector<Pcre<pcre2_code>> patterns) : patterns_(std::move(patterns)) {}

  Status Split(std::string_view text, size_t* position, std::vector<uint32_t>* ends) const override {
    DI_CHECK(*position == 0);
    if (text.empty()) return Status();
    const size_t old_size = ends->size();
    const Matcher matcher;
    std::vector<uint32_t> before = {static_cast<uint32_t>(text.size())};
    std::vector<uint32_t> after;
    for (const Pcre<pcre2_code>& pattern : patterns_) {
      after.clear();
      size_t start = 0;
      for (const uint32_t end : before) {
        DI_RETURN_IF_ERROR(Isolate(pattern.get(), matcher, text.substr(start, end - start), start, &after));
        start = end;
      }
      std::swap(before, after);
    }
    ends->insert(ends->begin() + old_size, before.begin(), before.end());
    *position = text.size();
    return Status();
  }

  bool SafeCut(std::string_view, size_t) const override { return false; }

 private:
  // Appends the ends of the pieces of `piece`, which lies at `base` of the text: each match one, and what is between.
  static Status Isolate(const pcre2_code* pattern, const Matcher& matcher, std::string_view piece, size_t base,
                        std::vector<uint32_t>* ends) {
    const auto* subject = reinterpret_cast<PCRE2_SPTR>(piece.data());
    size_t last_end = 0;
    const auto border = [&](size_t end) {
      if (end == last_end) return;
      ends->push_back(static_cast<uint32_t>(base + end));
      last_end = end;
    };
    size_t from = 0;
    while (from < piece.size()) {
      const int count = Match(pattern, matcher, subject, piece.size(), from);
      if (count == PCRE2_ERROR_NOMATCH) break;
      if (count < 0) {
        return Error(Code::kResourceExhausted, "split pattern on a text of {} bytes: {}", piece.size(),
                     PcreMessage(count));
      }
      const PCRE2_SIZE* match = pcre2_get_ovector_pointer(matcher.data.get());
      border(match[0]);
      border(match[1]);
      from = match[1];
      // An empty match is a border, and the search goes on behind the next character.
      if (match[0] == match[1] && from < piece.size()) from += DecodeUtf8(piece.substr(from)).size;
    }
    border(piece.size());
    return Status();
  }

  static int Match(const pcre2_code* pattern, const Matcher& matcher, PCRE2_SPTR subject, size_t size, size_t from) {
    const int count =
        pcre2_match(pattern, subject, size, from, PCRE2_NO_UTF_CHECK, matcher.data.get(), matcher.context.get());
    if (count != PCRE2_ERROR_JIT_STACKLIMIT) return count;
    // The interpreter keeps its backtracking on the heap, where there is more room.
    return pcre2_match(pattern, subject, size, from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, matcher.data.get(),
                       matcher.context.get());
  }

  std::vector<Pcre<pcre2_code>> patterns_;
};

}  // namespace

Result<std::unique_ptr<PreTokenizer>> MakeRegexSplitter(const std::vector<std::string>& patterns) {
  std::vector<Pcre<pcre2_code>> compiled;
  for (const std::string& pattern : patterns) {
    DI_ASSIGN_OR_RETURN(Pcre<pcre2_code> code, Compile(pattern));
    compiled.push_back(std::move(code));
  }
  return std::unique_ptr<PreTokenizer>(new RegexSplitter(std::move(compiled)));
}

}  // namespace deepinfer
