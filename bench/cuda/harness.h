// SPDX-License-Identifier: Apache-2.0
// Timing of ops on the card: the op is captured in a CUDA graph (so launch gaps do not count), replayed, and the median
// of event times taken. Random inputs; several copies of small weights, so that they do not sit in the cache.
#pragma once

#include <functional>
#include <random>
#include <string>
#include <vector>

#include "backend/api/ops.h"
#include "backend/cuda/context.h"
#include "backend/cuda/weights.h"

namespace deepinfer::bench {

class Card {
 public:
  Card();
  ~Card();

  backend::cuda::Context& context() { return context_; }

  // Device memory that lives as long as the card.
  template <typename T>
  T* Put(const std::vector<T>& values) {
    return static_cast<T*>(PutBytes(values.data(), values.size() * sizeof(T)));
  }
  template <typename T>
  T* Room(int64_t n) {
    return static_cast<T*>(PutBytes(nullptr, static_cast<size_t>(n) * sizeof(T)));
  }
  std::vector<float> Normal(int64_t n);
  // Bound as what is read with `activations`.
  backend::Matrix Weights(backend::WeightFormat format, int64_t rows, int64_t cols,
                          backend::Activations activations = backend::Activations::kBf16);

  // Median seconds of one call of op(i); i counts calls, to rotate inputs. `calls` of them make a graph.
  double Seconds(int calls, const std::function<void(int)>& op);

  // Ends the process with a message if the card reported an error.
  void Check();

 private:
  void* PutBytes(const void* host, size_t size_bytes);

  backend::cuda::Context context_{0};
  backend::cuda::Weights weights_{context_};
  std::vector<void*> owned_;
  std::vector<uint8_t> codes_;
  std::mt19937 random_{1};
};

// One line of the table: also the record of docs/performance.json.
void Report(const std::string& op, const std::string& shape, double value, const std::string& unit, const std::string& note);

}  // namespace deepinfer::bench
