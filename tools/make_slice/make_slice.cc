// SPDX-License-Identifier: Apache-2.0
// Makes a random checkpoint of the published shape with few layers (shape.h), to run and measure the engine where the
// published weights are not: about 10 GB with the default options, written by all cores. The same options give the same
// bytes on every machine.
//
//   make_slice --tokenizer FILE [--experts N] [--engram-vocab N] [--draft-stages N] [--seed N] [--small] DIRECTORY
//
// Exit status: 0 made, 1 failed with the reason on stderr.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "checkpoint/expected.h"
#include "random_tensor.h"
#include "shape.h"

namespace deepinfer::tools {
namespace {

namespace fs = std::filesystem;
using checkpoint::ExpectedTensor;
using checkpoint::Storage;

int ScaleCode(Kind kind, double deviation) { return 127 + static_cast<int>(std::lround(std::log2(deviation / CodeRms(kind)))); }

// Values like those of a trained model where they decide how large activations are; else normal with cols^-1/2.
Tensor Floats(const ExpectedTensor& expected, Kind kind) {
  const auto is = [&](std::string_view end) { return expected.name.ends_with(end); };
  Tensor tensor{.name = expected.name, .kind = kind, .elements = expected.shape.NumElements().value()};
  tensor.deviation = 1.0f / std::sqrt(static_cast<float>(expected.shape[expected.shape.rank() - 1]));
  if (is("norm.weight") || is("q_weight") || is("k_weight") || is("_scale")) {
    tensor.mean = 1;
    tensor.deviation = 0.1f;
  } else if (is("_base") || is(".bias") || is("bias_vl")) {
    tensor.deviation = 0.1f;
  } else if (is("attn_sink") || is("embed.weight")) {
    tensor.deviation = 1;
  }
  return tensor;
}

// The tensors that a matrix is stored as.
void AddMatrix(const ExpectedTensor& expected, std::vector<Tensor>* tensors, std::vector<std::string>* shapes) {
  const int64_t rows = expected.shape[0], cols = expected.shape[1];
  const bool fp4 = expected.storage == Storage::kFP4, tiles = expected.storage == Storage::kFP8Tiles;
  const Kind kind = fp4 ? Kind::kE2m1Pairs : Kind::kE4m3;
  const int64_t stored_cols = fp4 ? cols / 2 : cols, scale_rows = tiles ? (rows + 31) / 32 : rows;
  const double deviation = expected.storage == Storage::kFP8Rows ? 1 : 1 / std::sqrt(static_cast<double>(cols));
  tensors->push_back({.name = expected.name + ".weight", .kind = kind, .elements = rows * stored_cols});
  shapes->push_back(fmt::format("[{},{}]", rows, stored_cols));
  tensors->push_back({.name = expected.name + ".scale",
                      .kind = Kind::kE8m0,
                      .elements = scale_rows * (cols / 32),
                      .scale_code = ScaleCode(kind, deviation)});
  shapes->push_back(fmt::format("[{},{}]", scale_rows, cols / 32));
}

std::string_view DtypeName(Kind kind) {
  switch (kind) {
    case Kind::kBf16:
      return "BF16";
    case Kind::kF32:
      return "F32";
    case Kind::kE4m3:
      return "F8_E4M3";
    case Kind::kE2m1Pairs:
      return "I8";
    case Kind::kE8m0:
      return "F8_E8M0";
  }
  return "";
}

std::vector<Tensor> Plan(const checkpoint::ModelConfig& config, std::string* header) {
  std::vector<Tensor> tensors;
  std::vector<std::string> shapes;
  for (const ExpectedTensor& expected : checkpoint::ExpectedTensors(config)) {
    if (expected.is_matrix() && expected.name != "head") {
      AddMatrix(expected, &tensors, &shapes);
      continue;
    }
    tensors.push_back(Floats(expected, expected.storage == Storage::kF32 ? Kind::kF32 : Kind::kBf16));
    tensors.back().name = expected.weight_name();
    std::string dims;
    for (size_t d = 0; d < expected.shape.rank(); ++d) dims += fmt::format("{}{}", d == 0 ? "" : ",", expected.shape[d]);
    shapes.push_back("[" + dims + "]");
  }
  int64_t at = 0;
  *header = "{\"__metadata__\":{\"format\":\"pt\"}";
  for (size_t i = 0; i < tensors.size(); ++i) {
    Tensor& t = tensors[i];
    t.begin_byte = at;
    at = t.end_byte = at + t.elements * t.element_bytes();
    *header += fmt::format(",\"{}\":{{\"dtype\":\"{}\",\"shape\":{},\"data_offsets\":[{},{}]}}", t.name, DtypeName(t.kind),
                           shapes[i], t.begin_byte, t.end_byte);
  }
  *header += "}";
  header->resize((header->size() + 8 + 63) / 64 * 64 - 8, ' ');  // data aligned to 64
  return tensors;
}

Status WriteAt(int fd, const void* data, size_t size_bytes, int64_t offset) {
  for (size_t done = 0; done < size_bytes;) {
    const ssize_t n = pwrite(fd, static_cast<const char*>(data) + done, size_bytes - done, offset + static_cast<int64_t>(done));
    if (n <= 0) return Error(Code::kResourceExhausted, "writing model.safetensors: {}", std::strerror(errno));
    done += static_cast<size_t>(n);
  }
  return Status();
}

// Threads take pieces of tensors in turn.
Status WriteTensors(int fd, const std::vector<Tensor>& tensors, int64_t data_begin, uint64_t seed) {
  std::atomic<size_t> next = 0;
  std::vector<std::pair<size_t, int64_t>> pieces;
  for (size_t i = 0; i < tensors.size(); ++i) {
    for (int64_t p = 0; p * kPieceBytes < tensors[i].end_byte - tensors[i].begin_byte; ++p) pieces.emplace_back(i, p);
  }
  std::vector<Status> results(std::max(1u, std::thread::hardware_concurrency()));
  std::vector<std::thread> threads;
  for (Status& result : results) {
    threads.emplace_back([&] {
      std::vector<std::byte> bytes;
      for (size_t at = next++; at < pieces.size() && result.ok(); at = next++) {
        const Tensor& tensor = tensors[pieces[at].first];
        const int64_t begin = tensor.begin_byte + pieces[at].second * kPieceBytes;
        bytes.resize(static_cast<size_t>(std::min(kPieceBytes, tensor.end_byte - begin)));
        FillPiece(tensor, seed, pieces[at].second, bytes);
        result = WriteAt(fd, bytes.data(), bytes.size(), data_begin + begin);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Status& result : results) DI_RETURN_IF_ERROR(result);
  return Status();
}

Status Make(const SliceOptions& options, uint64_t seed, const std::string& directory) {
  DI_ASSIGN_OR_RETURN(const std::string config_text, SliceConfig(options));
  DI_ASSIGN_OR_RETURN(const checkpoint::ParsedConfig parsed, checkpoint::ParseModelConfig(config_text));
  std::error_code error;
  fs::create_directories(directory, error);
  fs::copy_file(options.tokenizer, fs::path(directory) / "tokenizer.json", fs::copy_options::overwrite_existing, error);
  if (error) return Error(Code::kInvalidArgument, "{}: {}", directory, error.message());
  std::ofstream(fs::path(directory) / "config.json") << config_text;
  std::string header;
  const std::vector<Tensor> tensors = Plan(parsed.config, &header);
  const std::string path = (fs::path(directory) / "model.safetensors").string();
  const int fd = open(path.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0644);
  if (fd < 0) return Error(Code::kInvalidArgument, "{}: {}", path, std::strerror(errno));
  const uint64_t length = header.size();
  Status status = WriteAt(fd, &length, 8, 0);
  if (status.ok()) status = WriteAt(fd, header.data(), header.size(), 8);
  if (status.ok()) status = WriteTensors(fd, tensors, 8 + static_cast<int64_t>(header.size()), seed);
  if (close(fd) != 0 && status.ok()) status = Error(Code::kResourceExhausted, "{}: {}", path, std::strerror(errno));
  if (status.ok()) fmt::print("{}: {} tensors, {} bytes\n", path, tensors.size(), tensors.back().end_byte);
  return status;
}

}  // namespace
}  // namespace deepinfer::tools

int main(int argc, char** argv) {
  deepinfer::tools::SliceOptions options;
  uint64_t seed = 1;
  std::string directory;
  CLI::App app("makes a random checkpoint of the published shape with few layers");
  app.add_option("--tokenizer", options.tokenizer, "a tokenizer.json")->required();
  app.add_option("--experts", options.num_experts, "routed experts of a layer (default 48)")->check(CLI::Range(1, 4096));
  app.add_option("--engram-vocab", options.engram_vocab, "table rows of each head (default 160000)")->check(CLI::Range(100, 16000000));
  app.add_option("--draft-stages", options.draft_stages, "stages of a draft model (default 0)")->check(CLI::Range(0, 3));
  app.add_option("--seed", seed, "of the weights (default 1)");
  app.add_flag("--small", options.small, "small widths, for tests");
  app.add_option("DIRECTORY", directory, "where the checkpoint goes")->required();
  CLI11_PARSE(app, argc, argv);
  const deepinfer::Status status = deepinfer::tools::Make(options, seed, directory);
  if (status.ok()) return 0;
  fmt::print(stderr, "make_slice: {}\n", status.message());
  return 1;
}
