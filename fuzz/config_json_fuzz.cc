// SPDX-License-Identifier: Apache-2.0
// Any bytes as config.json: an error with a message, or a config whose lists agree, so that everything derived from it
// (sources of layers, expected tensors, Engram hashes) can be computed. Seeds: the config.json files of tests and
// models.
#include "checkpoint/config.h"
#include "checkpoint/engram_hash.h"
#include "checkpoint/expected.h"

namespace deepinfer::checkpoint {
namespace {

void CheckLayers(const ModelConfig& config) {
  DI_CHECK(config.compress_ratios.size() == static_cast<size_t>(config.num_layers));
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    const int64_t ratio = config.compress_ratios[static_cast<size_t>(layer)];
    if (ratio == 0) continue;
    DI_CHECK(kBlockPositions % ratio == 0);
    const int64_t source = config.KvSourceOf(layer);
    DI_CHECK(source <= layer && config.compress_ratios[static_cast<size_t>(source)] == ratio);
    DI_CHECK(config.IndexSourceOf(layer) >= source && config.IndexSourceOf(layer) <= layer);
  }
}

void Run(std::string_view text) {
  const Result<ParsedConfig> parsed = ParseModelConfig(text);
  if (!parsed.ok()) {
    DI_CHECK(!parsed.status().message().empty());
    return;
  }
  const ModelConfig& config = parsed->config;
  CheckLayers(config);
  const std::vector<EngramHash> hashes = MakeEngramHashes(config.engram);
  for (size_t i = 0; i < hashes.size(); ++i) DI_CHECK(hashes[i].num_rows() == config.engram.num_embeddings[i]);
  constexpr int64_t kListedMax = 2000;  // keeps an input below a millisecond
  if (config.num_layers * config.num_experts > kListedMax ||
      config.draft.num_stages * config.draft.num_experts > kListedMax) {
    return;
  }
  for (const ExpectedTensor& tensor : ExpectedTensors(config)) DI_CHECK(tensor.shape.NumElements().has_value());
}

}  // namespace
}  // namespace deepinfer::checkpoint

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  deepinfer::checkpoint::Run({reinterpret_cast<const char*>(data), size});
  return 0;
}
