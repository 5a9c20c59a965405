// SPDX-License-Identifier: Apache-2.0
// The golden vectors of tests/golden/model: what an independent float64 implementation computes on tiny checkpoints.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "checkpoint/safetensors.h"
#include "engine/session.h"

namespace deepinfer::golden {

inline const std::string kModelDir = std::string(DI_SOURCE_DIR) + "/tests/golden/model/";

// Ends the test with the message of an error.
template <typename T>
T Must(Result<T> result) {
  if (!result.ok()) {
    ADD_FAILURE() << result.status().message();
    std::abort();
  }
  return *std::move(result);
}

inline void Must(const Status& status) {
  if (status.ok()) return;
  ADD_FAILURE() << status.message();
  std::abort();
}

// A file of golden tensors.
class Vectors {
 public:
  explicit Vectors(const std::string& path) : file_(Must(checkpoint::SafetensorsFile::Open(path))) {}

  bool Has(const std::string& name) const { return file_.Find(name).ok(); }
  std::vector<int64_t> ShapeOf(const std::string& name) const {
    const auto dims = Must(file_.Find(name)).shape.dims();
    return {dims.begin(), dims.end()};
  }
  template <typename T>
  std::vector<T> Get(const std::string& name) const {
    const TensorView tensor = Must(file_.Find(name));
    std::vector<T> values(static_cast<size_t>(tensor.num_elements()));
    DI_CHECK(tensor.size_bytes() == values.size() * sizeof(T));
    std::copy_n(tensor.data, tensor.size_bytes(), reinterpret_cast<std::byte*>(values.data()));
    return values;
  }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& info : file_.header().tensors) names.push_back(info.name);
    return names;
  }

 private:
  checkpoint::SafetensorsFile file_;
};

// Largest absolute difference; infinity where one of them is not finite.
inline double MaxDifference(std::span<const float> a, std::span<const float> b) {
  DI_CHECK(a.size() == b.size());
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = std::fabs(double{a[i]} - double{b[i]});
    if (!(difference <= worst)) worst = std::isnan(difference) ? INFINITY : difference;
  }
  return worst;
}

inline std::unique_ptr<engine::LoadedModel> LoadFolder(const std::string& folder, const engine::BackendOptions& options,
                                                       backend::Activations activations = backend::Activations::kFp32) {
  return Must(engine::LoadedModel::Load(kModelDir + folder, options, activations));
}

}  // namespace deepinfer::golden
