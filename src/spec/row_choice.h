// SPDX-License-Identifier: Apache-2.0
// Which drafts of a batch are worth verifying: the set that gives the most expected tokens per second (spec/dspark.md 7).
//
// A draft row yields a token with its survival probability and makes the step longer. Rows are taken in descending order
// of survival over the whole batch; since survival never rises within a request, each gets a prefix of its drafts. Every
// row costs the same, so after n rows this is the best set of n, and the best n is found along the way.
//
// A chooser owns its scratch and allocates nothing after construction; one thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace deepinfer::spec {

// When to stop taking rows. Under coupled noise the tokens are the same whatever is verified, so the choice is free. In
// the settings that draw drafts and acceptance apart, whether draft j is verified may depend on nothing that was known only
// after it was drawn: the confidences behind it are such. Stopping at the first row that does not pay keeps to that.
enum class StopRule {
  kBest,       // the best number of rows of all
  kFirstLoss,  // the rows before the first one that lowers the expected speed
};

struct RowChoiceInput {
  int32_t drafts = 0;                  // drafts per request
  std::span<const float> survival;     // [requests, drafts]: in [0, 1], non-increasing for each request
  std::span<const int32_t> limits;     // [requests]: at most so many drafts, 0 .. drafts
  double sure_tokens = 0;              // what the step yields without any drafts
  // Seconds that the step takes with n draft rows, positive; its size less one is the most rows there may be.
  std::span<const double> cost;
  StopRule stop = StopRule::kBest;
};

struct RowChoice {
  int32_t rows = 0;          // of all requests
  double tokens = 0;         // expected, the sure ones included
  double per_second = 0;     // tokens / cost[rows]
};

class RowChooser {
 public:
  RowChooser(int32_t requests_max, int32_t drafts_max);

  // Fills lengths [requests] with the number of drafts to verify for each. REQUIRES: within the maxima; cost not empty.
  RowChoice Choose(const RowChoiceInput& input, std::span<int32_t> lengths);

 private:
  struct Item {
    uint32_t key;     // descending survival = ascending key
    int32_t request;
  };
  void List(const RowChoiceInput& input);
  void Sort();

  std::vector<Item> items_, spare_;
  size_t items_max_;
};

}  // namespace deepinfer::spec
