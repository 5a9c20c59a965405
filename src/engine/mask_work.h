// SPDX-License-Identifier: Apache-2.0
// The masks that one request waits for: those of all its choices that draw in a step. The choices of a request share the
// caches of their grammar, so they are one piece of work, done by one thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

namespace deepinfer::engine {

class Choice;

struct MaskWork {
  struct Item {
    std::shared_ptr<Choice> choice;
    std::vector<int32_t> drafts;  // as Choice::PrepareMasks
  };
  std::vector<Item> items;

  // From MaskWorker::Start until the masks are there. Meanwhile nobody else may draw for these choices, nor draft.
  std::atomic<bool> busy = false;

  // A mask took this much of a processor. A request with a slow one counts as slow until some masks in a row were not.
  void NoteSeconds(double seconds) { slow_left_ = seconds > kSlowSeconds ? kSlowMasks : slow_left_ > 0 ? slow_left_ - 1 : 0; }
  bool slow() const { return slow_left_ > 0; }

 private:
  static constexpr double kSlowSeconds = 1e-3;  // ordinary masks take a hundredth of it
  static constexpr int kSlowMasks = 16;
  std::atomic<int> slow_left_ = 0;
};

}  // namespace deepinfer::engine
