// SPDX-License-Identifier: Apache-2.0
// How far `deepinfer batch` is, on stderr: a bar that is rewritten on a terminal, a line every ten seconds elsewhere, and a
// last line at the end. One thread at a time.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "cli/common.h"

namespace deepinfer::cli {

class BatchProgress {
 public:
  // `lines`: of the input; -1: not known.
  explicit BatchProgress(int64_t lines) : lines_(lines) {}
  ~BatchProgress() { Print(terminal_ ? "\n" : ""); }
  BatchProgress(const BatchProgress&) = delete;
  BatchProgress& operator=(const BatchProgress&) = delete;

  void Answered(bool good) { ++(good ? good_ : failed_); }
  // Lines that need nothing: empty, or answered by an earlier run.
  void Skipped() { ++skipped_; }
  // So far, of requests that have ended (prompts) or run (answers).
  void Tokens(int64_t prompt, int64_t answer) { prompt_tokens_ = prompt, answer_tokens_ = answer; }
  int64_t failed() const { return failed_; }

  // Shows how far things are, if it is time to.
  void Show() {
    const auto now = Clock::now();
    if (now - shown_ < std::chrono::milliseconds(terminal_ ? 200 : 10000)) return;
    shown_ = now;
    Print("");
  }

 private:
  using Clock = std::chrono::steady_clock;

  void Print(const char* end) const {
    const int64_t done = good_ + failed_ + skipped_;
    const double seconds = std::max(1e-3, std::chrono::duration<double>(Clock::now() - begin_).count());
    std::string text = fmt::format("{} answered", good_ + failed_);
    if (lines_ > 0) {
      constexpr int kWidth = 30;
      const auto filled = static_cast<int>(kWidth * std::min(done, lines_) / lines_);
      const std::string bar = std::string(static_cast<size_t>(filled), '#') + std::string(static_cast<size_t>(kWidth - filled), '.');
      text = fmt::format("[{}] {}/{} lines", bar, done, lines_);
      // By the lines of this run; skipped ones cost nothing.
      const double rate = static_cast<double>(good_ + failed_) / seconds;
      if (rate > 0 && done < lines_) text += fmt::format(", {:.0f} s left", static_cast<double>(lines_ - done) / rate);
    }
    if (failed_ > 0) text += fmt::format(", {} failed", failed_);
    Note("{}{}, {:.0f} tokens/s ({} prompt, {} answer){}{}", terminal_ ? "\r" : "", text, static_cast<double>(answer_tokens_) / seconds,
         prompt_tokens_, answer_tokens_, terminal_ ? "\033[K" : "\n", end);
  }

  const int64_t lines_;
  const bool terminal_ = isatty(STDERR_FILENO) != 0;
  const Clock::time_point begin_ = Clock::now();
  Clock::time_point shown_ = begin_;
  int64_t good_ = 0, failed_ = 0, skipped_ = 0, prompt_tokens_ = 0, answer_tokens_ = 0;
};

}  // namespace deepinfer::cli
