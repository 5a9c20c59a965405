// SPDX-License-Identifier: Apache-2.0
// The first layers of a slice on the card, with caches full of random codes, timed. One at a time.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/loaded_model.h"
#include "model/deepseek_v41/forward.h"

namespace deepinfer::bench {

class LayerStack {
 public:
  // Ends the process with a message where the slice cannot be loaded.
  LayerStack(const std::string& directory, const std::string& activations);

  // Whether the router's bias is brought to where the timed rows load the experts evenly, as training does; else it stays random.
  void set_balanced(bool on) { balanced_ = on; }
  // From now on passes of all layers are taken apart instead of timed.
  void set_profile(bool on) { profile_ = on; }
  // Called behind the timed passes, while their models are there; the last recording was that of all layers.
  void set_after_passes(std::function<void()> call) { after_passes_ = std::move(call); }
  int64_t num_layers() const { return loaded_->config().num_layers; }
  int64_t context_max() const { return loaded_->config().max_positions; }
  int64_t num_experts() const { return loaded_->config().num_experts; }
  double copy_bytes_per_s() const { return copy_bytes_per_s_; }

  // Cache memory of so many requests of that length, each with blocks of its own.
  void SetCaches(int requests, int context);
  // Seconds of the first 0, 1, ... layers, logits included. Nothing while passes are taken apart.
  // A decode step: one row of every request, at the last position.
  std::vector<double> Decode(int batch, int context);
  // The last `rows` positions of one request, logits of the last.
  std::vector<double> Prefill(int rows, int context);

 private:
  void Must(const Status& status) const;
  backend::Buffer Random(int64_t bytes);
  template <typename T>
  const T* Put(const std::vector<T>& values);
  // Prints what each op of a pass takes.
  void Profile(const model::deepseek_v41::ModelOptions& options, const model::deepseek_v41::Step& step);
  template <typename Take>
  void CountTokens(model::deepseek_v41::Model& model, const model::deepseek_v41::Step& step, const Take& take);
  void Balance(const model::deepseek_v41::ModelOptions& options, const model::deepseek_v41::Step& step);
  std::vector<double> Times(const model::deepseek_v41::ModelOptions& options, const model::deepseek_v41::Step& step, int rounds, int runs);
  void MeasureCopy();

  std::unique_ptr<engine::LoadedModel> loaded_;
  backend::Activations activations_;
  model::deepseek_v41::Caches caches_;
  std::vector<backend::Buffer> cache_buffers_;
  double copy_bytes_per_s_ = 0;
  bool profile_ = false;
  bool balanced_ = true;
  std::function<void()> after_passes_;
};

}  // namespace deepinfer::bench
