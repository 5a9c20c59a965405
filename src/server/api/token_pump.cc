// SPDX-License-Identifier: Apache-2.0
#include "server/api/token_pump.h"

#include <utility>

#include "core/check.h"

namespace deepinfer::server {

TokenPump::TokenPump() : thread_([this] { Run(); }) {}

TokenPump::~TokenPump() { DI_CHECK(!thread_.joinable()); }

void TokenPump::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wakes_.notify_one();
  thread_.join();
  // Outside of the lock: sinks that go with their mails may be the last to hold much.
  std::vector<TokenMail> dropped;
  const std::lock_guard lock(mutex_);
  dropped.swap(mails_);
}

void TokenPump::Post(TokenMail mail) {
  bool wake = false;
  {
    const std::lock_guard lock(mutex_);
    if (stop_) return;
    mails_.push_back(std::move(mail));
    wake = std::exchange(sleeps_, false);
  }
  if (wake) wakes_.notify_one();
}

void TokenPump::Run() {
  std::vector<TokenMail> mails;
  std::vector<std::shared_ptr<TokenSink>> sinks;
  while (true) {
    {
      std::unique_lock lock(mutex_);
      while (mails_.empty() && !stop_) {
        sleeps_ = true;
        wakes_.wait(lock);
      }
      if (stop_) return;
      mails.swap(mails_);
    }
    for (TokenMail& mail : mails) {
      TokenSink& sink = *mail.sink;
      if (sink.round_.empty()) sinks.push_back(std::move(mail.sink));
      sink.round_.push_back(std::move(mail));
    }
    mails.clear();
    for (const auto& sink : sinks) {
      sink->OnTokens(sink->round_);
      sink->round_.clear();
    }
    sinks.clear();
  }
}

}  // namespace deepinfer::server
