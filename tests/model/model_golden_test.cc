// SPDX-License-Identifier: Apache-2.0
// Property: on the reference backend, on every variant of the CPU backend and on a CUDA card, every golden checkpoint gives the stored
// logits, streams, selections, experts and Engram rows within 1e-4 (choices exactly), in one piece, in chunks, and token
// by token. Origin of the vectors: tests/golden/model/README.md.
#include "backend/cpu/cpu_backend.h"
#include "tests/model/golden.h"

namespace deepinfer::golden {
namespace {

using engine::AppendRequest;
using engine::Logits;
using engine::Session;
using model::deepseek_v41::Tap;

constexpr double kTolerance = 1e-4;

class Golden : public testing::TestWithParam<std::tuple<std::string, std::string>> {
 protected:
  Golden() : vectors_(kModelDir + Folder() + "/golden.safetensors") {}
  void SetUp() override {
    const std::string& variant = std::get<0>(GetParam());
    if (variant == "reference") {
      loaded_ = LoadFolder(Folder(), {.name = "reference"});
      return;
    }
    if (variant == "cuda") {
      if (const auto card = engine::CreateBackend({.name = "cuda"}); !card.ok()) GTEST_SKIP() << card.status().message();
      loaded_ = LoadFolder(Folder(), {.name = "cuda"});
      return;
    }
    const auto variants = backend::CpuVariants();
    if (std::find(variants.begin(), variants.end(), variant) == variants.end()) {
      GTEST_SKIP() << "this machine has no " << variant;
    }
    loaded_ = LoadFolder(Folder(), {.name = "cpu", .num_threads = 2, .variant = variant});
  }
  static std::string Folder() { return std::get<1>(GetParam()); }

  std::unique_ptr<Session> NewSession(int64_t chunk, backend::Activations activations = backend::Activations::kFp32) {
    return Must(Session::Create(*loaded_, {.chunk = chunk, .activations = activations}));
  }
  // Tokens [begin, end) of sequence i, with its image rows if it has any.
  std::vector<float> Run(Session* session, int i, size_t begin, size_t end, Logits logits) {
    const auto ids = vectors_.Get<int32_t>("ids." + std::to_string(i));
    AppendRequest request{.ids = std::span(ids).subspan(begin, end - begin), .logits = logits};
    std::vector<uint8_t> image;
    std::vector<float> embeds;
    if (i == 2 && vectors_.Has("image.2")) {
      image = vectors_.Get<uint8_t>("image.2");
      embeds = vectors_.Get<float>("embeds.2");
      const size_t hidden = embeds.size() / ids.size();
      request.is_image = std::span(image).subspan(begin, end - begin);
      request.embeds = std::span(embeds).subspan(begin * hidden, (end - begin) * hidden);
    }
    return Must(session->Append(request));
  }
  size_t Length(int i) const { return vectors_.Get<int32_t>("ids." + std::to_string(i)).size(); }
  std::vector<float> RunAll(Session* session, int i) { return Run(session, i, 0, Length(i), Logits::kAll); }

  std::unique_ptr<engine::LoadedModel> loaded_;
  Vectors vectors_;
};

TEST_P(Golden, LogitsInEveryChunking) {
  for (const int64_t chunk : {512, 1, 7, 64, 128}) {
    const auto session = NewSession(chunk);
    for (int i = 0; i < 3; ++i) {
      session->Clear();
      const double difference = MaxDifference(RunAll(session.get(), i), vectors_.Get<float>("logits." + std::to_string(i)));
      EXPECT_LE(difference, kTolerance) << "sequence " << i << " in chunks of " << chunk;
    }
  }
}

TEST_P(Golden, PrefillThenDecode) {
  const auto session = NewSession(64);
  const auto vocab = static_cast<size_t>(loaded_->config().vocab_size);
  for (int i = 0; i < 3; ++i) {
    const std::string suffix = "." + std::to_string(i);
    if (!vectors_.Has("decode" + suffix)) continue;
    const auto expected = vectors_.Get<float>("decode" + suffix);
    const auto from = static_cast<size_t>(vectors_.Get<int32_t>("decode_from" + suffix)[0]);
    session->Clear();
    if (from > 0) Run(session.get(), i, 0, from, Logits::kLast);
    for (size_t p = from; p < Length(i); ++p) {
      const auto logits = Run(session.get(), i, p, p + 1, Logits::kLast);
      ASSERT_LE(MaxDifference(logits, std::span(expected).subspan((p - from) * vocab, vocab)), kTolerance)
          << "sequence " << i << " position " << p;
    }
  }
}

// Only the last row's logits: later layers run fewer rows, the bits stay.
TEST_P(Golden, LastLogitsAreBitEqual) {
  const auto vocab = static_cast<size_t>(loaded_->config().vocab_size);
  for (const int64_t chunk : {512, 13}) {
    const auto session = NewSession(chunk);
    for (const size_t n : {size_t{1}, size_t{2}, size_t{17}, size_t{65}, size_t{129}, Length(1)}) {
      session->Clear();
      const auto all = Run(session.get(), 1, 0, n, Logits::kAll);
      session->Clear();
      const auto last = Run(session.get(), 1, 0, n, Logits::kLast);
      EXPECT_TRUE(std::equal(last.begin(), last.end(), all.end() - static_cast<std::ptrdiff_t>(vocab))) << n;
    }
  }
}

TEST_P(Golden, StreamsAndChoices) {
  const auto session = NewSession(512);
  int compared = 0;
  for (const int i : {1, 2}) {
    session->Clear();
    session->set_tap([&](Tap tap, int64_t layer, std::span<const int32_t> rows, const void* device, int64_t row_bytes) {
      const std::string suffix = "." + std::to_string(layer) + "." + std::to_string(i);
      const auto bytes = rows.size() * static_cast<size_t>(row_bytes);
      std::vector<std::byte> host(bytes);
      loaded_->backend().CopyToHost(host.data(), device, bytes);
      ASSERT_TRUE(loaded_->backend().Synchronize().ok());
      const void* data = host.data();
      if (tap == Tap::kStreams && vectors_.Has("streams" + suffix)) {
        const auto expected = vectors_.Get<float>("streams" + suffix);
        const std::span actual(static_cast<const float*>(data), expected.size());
        EXPECT_LE(MaxDifference(actual, expected), kTolerance) << "streams" << suffix;
        ++compared;
      } else if (tap == Tap::kSelected && vectors_.Has("selected" + suffix)) {
        const auto expected = vectors_.Get<int16_t>("selected" + suffix);
        const std::span actual(static_cast<const int32_t*>(data), bytes / 4);
        EXPECT_TRUE(std::equal(actual.begin(), actual.end(), expected.begin(), expected.end())) << "selected" << suffix;
        ++compared;
      } else if (tap == Tap::kExperts && vectors_.Has("experts" + suffix)) {
        const auto expected = vectors_.Get<uint8_t>("experts" + suffix);
        const std::span actual(static_cast<const int32_t*>(data), bytes / 4);
        EXPECT_TRUE(std::equal(actual.begin(), actual.end(), expected.begin(), expected.end())) << "experts" << suffix;
        ++compared;
      } else if (tap == Tap::kEngramRows && vectors_.Has("engram_rows" + suffix)) {
        const auto expected = vectors_.Get<int32_t>("engram_rows" + suffix);
        const std::span actual(static_cast<const int64_t*>(data), bytes / 8);
        EXPECT_TRUE(std::equal(actual.begin(), actual.end(), expected.begin(), expected.end())) << "engram" << suffix;
        ++compared;
      }
    });
    RunAll(session.get(), i);
  }
  int stored = 0;
  for (const std::string& name : vectors_.Names()) {
    for (const char* kind : {"streams.", "selected.", "experts.", "engram_rows."}) stored += name.starts_with(kind);
  }
  EXPECT_GT(stored, 0);
  EXPECT_EQ(compared, stored);
}

TEST_P(Golden, Fp8Activations) {
  if (!vectors_.Has("logits_fp8_activations.2")) GTEST_SKIP() << "this folder has no FP8 matrices";
  const auto session = NewSession(512, backend::Activations::kFp8);
  const auto expected = vectors_.Get<float>("logits_fp8_activations.2");
  const auto logits = RunAll(session.get(), 2);
  EXPECT_LE(MaxDifference(std::span(logits).first(expected.size()), expected), kTolerance);
}

INSTANTIATE_TEST_SUITE_P(All, Golden,
                         testing::Combine(testing::Values("reference", "avx512", "avx2", "portable", "cuda"),
                                          testing::Values("base", "window", "sources", "engram", "yarn", "image")),
                         [](const auto& instance) {
                           return std::get<0>(instance.param) + "_" + std::get<1>(instance.param);
                         });

}  // namespace
}  // namespace deepinfer::golden
