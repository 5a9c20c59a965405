// SPDX-License-Identifier: Apache-2.0
// Property: "from which token on does layer l run" (spec/model.md 8). An exact replay after a hit gives the bits of a
// cold run; the decoder and bounded modes give the stored logits of an independent implementation. Window rows and
// compressor state are poisoned before a replay, so one row too few shows.
#include "tests/model/golden.h"

namespace deepinfer::golden {
namespace {

using engine::Logits;
using engine::Replay;
using engine::Session;

constexpr double kTolerance = 1e-4;

class ReplayGolden : public testing::TestWithParam<std::tuple<std::string, std::string>> {
 protected:
  ReplayGolden()
      : loaded_(LoadFolder(Folder(), {.name = std::get<0>(GetParam())})),
        ids_(Vectors(kModelDir + Folder() + "/golden.safetensors").Get<int32_t>("ids.1")),
        replay_(kModelDir + Folder() + "/replay.safetensors"),
        prompt_(replay_.Get<int32_t>("prompt_length")[0]),
        layers_(static_cast<size_t>(loaded_->config().num_layers)),
        window_(static_cast<int32_t>(loaded_->config().window)) {}

  static std::string Folder() { return std::get<1>(GetParam()); }
  std::unique_ptr<Session> NewSession(int64_t chunk) { return Must(Session::Create(*loaded_, {.chunk = chunk})); }

  // r[L] = a; r[l] = max(0, min(r[l + 1] - (W - 1), P if layer l is a KV source)).
  Replay Exact(int32_t hit) const {
    Replay replay{.run_from = std::vector<int32_t>(layers_ + 1), .window_floor = std::vector<int32_t>(layers_)};
    replay.run_from[layers_] = prompt_ - 1;
    for (size_t l = layers_; l-- > 0;) {
      int32_t from = replay.run_from[l + 1] - (window_ - 1);
      if (loaded_->config().IsKvSource(static_cast<int64_t>(l))) from = std::min(from, hit);
      replay.run_from[l] = std::max(from, 0);
    }
    replay.global_floor = hit;
    return replay;
  }
  // Layers after the last KV source: prompt rows >= prompt - W. The others: from `encoder_from`.
  Replay Approximate(int32_t encoder_from, int32_t hit) const {
    const auto cut = static_cast<size_t>(loaded_->config().kv_sources.back());
    Replay replay{.run_from = std::vector<int32_t>(layers_ + 1, encoder_from),
                  .window_floor = std::vector<int32_t>(layers_, encoder_from),
                  .global_floor = hit};
    const int32_t decoder_from = std::max(prompt_ - window_, 0);
    if (cut + 1 < layers_) {
      for (size_t l = cut + 1; l <= layers_; ++l) replay.run_from[l] = decoder_from;
      for (size_t l = cut + 1; l < layers_; ++l) replay.window_floor[l] = decoder_from;
    }
    return replay;
  }
  // The prompt from where the session stands, then eight given tokens.
  std::vector<float> Continue(Session* session, const Replay& replay) const {
    const auto done = session->tokens().size();
    auto logits = Must(session->Append(
        {.ids = std::span(ids_).subspan(done, static_cast<size_t>(prompt_) - done), .replay = &replay}));
    for (size_t p = static_cast<size_t>(prompt_); p < static_cast<size_t>(prompt_) + 8; ++p) {
      const auto next = Must(session->Append({.ids = std::span(ids_).subspan(p, 1), .replay = &replay}));
      logits.insert(logits.end(), next.begin(), next.end());
    }
    return logits;
  }
  // Runs everything on [0, hit), then goes back to where the replay begins.
  std::vector<float> AfterHit(Session* session, int32_t hit, const Replay& replay) const {
    session->Clear();
    Must(session->Append({.ids = std::span(ids_).first(static_cast<size_t>(hit)), .logits = Logits::kAll}));
    session->Rewind(std::min(replay.run_from[0], hit));
    return Continue(session, replay);
  }

  std::unique_ptr<engine::LoadedModel> loaded_;
  std::vector<int32_t> ids_;
  Vectors replay_;
  int32_t prompt_;
  size_t layers_;
  int32_t window_;
};

TEST_P(ReplayGolden, ExactAfterAHitHasTheBitsOfAColdRun) {
  const auto session = NewSession(512);
  const auto cold = Continue(session.get(), Exact(0));
  EXPECT_LE(MaxDifference(cold, replay_.Get<float>("exact.logits")), kTolerance);
  for (const int64_t chunk : {512, 37}) {
    const auto warm_session = NewSession(chunk);
    for (int32_t hit = 2; hit < prompt_; hit += 26) {
      const auto warm = AfterHit(warm_session.get(), hit, Exact(hit));
      EXPECT_EQ(MaxDifference(warm, cold), 0) << "hit " << hit << " chunk " << chunk;
    }
  }
}

// One row less at the bottom of the trapezoid reads a poisoned window row. (FP4 rounding may turn its NaN into a number.)
TEST_P(ReplayGolden, OneRowLessShows) {
  const auto session = NewSession(512);
  const int32_t hit = prompt_ / 2 / 2 * 2 + 60;
  Replay replay = Exact(hit);
  if (replay.run_from[0] == 0) GTEST_SKIP() << "the trapezoid reaches the first token";
  ++replay.run_from[0];
  const auto warm = AfterHit(session.get(), hit, replay);
  EXPECT_GT(MaxDifference(warm, replay_.Get<float>("exact.logits")), 1e-3);
}

TEST_P(ReplayGolden, Decoder) {
  for (const int64_t chunk : {512, 1, 13, 64}) {
    const auto session = NewSession(chunk);
    EXPECT_LE(MaxDifference(Continue(session.get(), Approximate(0, 0)), replay_.Get<float>("decoder.logits")), kTolerance)
        << chunk;
  }
}

TEST_P(ReplayGolden, Bounded) {
  const auto session = NewSession(64);
  for (const int32_t hit : replay_.Get<int32_t>("hit")) {
    const Replay replay = Approximate(std::max(hit - window_, 0), hit);
    EXPECT_LE(MaxDifference(AfterHit(session.get(), hit, replay),
                            replay_.Get<float>("bounded." + std::to_string(hit) + ".logits")),
              kTolerance)
        << hit;
  }
}

INSTANTIATE_TEST_SUITE_P(All, ReplayGolden,
                         testing::Combine(testing::Values("reference", "cpu"),
                                          testing::Values("base", "sources", "engram")),
                         [](const auto& instance) {
                           return std::get<0>(instance.param) + "_" + std::get<1>(instance.param);
                         });

}  // namespace
}  // namespace deepinfer::golden
