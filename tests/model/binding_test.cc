// SPDX-License-Identifier: Apache-2.0
// Property: what the model says when it binds a matrix (Backend::BindMatrix) is what the ops that read it say, whatever activations it
// was loaded for. A backend may bind it in a form that is made for nothing else.
#include <map>

#include "backend/cpu/cpu_backend.h"
#include "backend/reference/reference_backend.h"
#include "engine/batch_engine.h"
#include "tests/model/forwarding_backend.h"
#include "tests/model/golden.h"

namespace deepinfer::golden {
namespace {

using backend::Activations;
using backend::Matrix;

// Compares at each op. To the model every bf16 matrix has scales, as a quantised checkpoint would have them: without, FP8 would mean bf16
// (EffectiveActivations) on both sides.
class ComparingBackend final : public ForwardingBackend {
 public:
  explicit ComparingBackend(std::unique_ptr<Backend> inner) : ForwardingBackend(std::move(inner)) {}

  Result<Matrix> BindMatrix(const Matrix& host, Activations activations) override {
    DI_ASSIGN_OR_RETURN(Matrix bound, ForwardingBackend::BindMatrix(host, activations));
    bound_[bound.data] = activations;
    if (bound.format == backend::WeightFormat::kBf16) bound.scale = static_cast<const uint8_t*>(bound.data);
    return bound;
  }
  void Linear(const backend::LinearParams& p) override {
    Compare(p.w, p.activations);
    ForwardingBackend::Linear(p);
  }
  void Experts(const backend::ExpertsParams& p) override {
    for (int64_t e = 0; p.topk > 0 && e < p.num_experts; ++e) CompareExpert(p.experts[e], p.activations);
    if (p.has_shared) CompareExpert(p.shared, p.activations);
    ForwardingBackend::Experts(p);
  }

  int64_t compared() const { return compared_; }

 private:
  void Compare(const Matrix& w, Activations read) {
    ++compared_;
    ASSERT_EQ(bound_.count(w.data), 1U);
    EXPECT_EQ(bound_[w.data], read) << "a matrix of " << w.rows << " x " << w.cols;
  }
  void CompareExpert(const backend::ExpertWeights& expert, Activations read) {
    for (const Matrix* w : {&expert.w1, &expert.w2, &expert.w3}) Compare(*w, read);
  }

  std::map<const void*, Activations> bound_;
  int64_t compared_ = 0;
};

class Binding : public testing::TestWithParam<Activations> {};

TEST_P(Binding, SaysWhatTheOpsOfAPassSay) {
  for (const std::string folder : {"base", "window", "sources", "engram", "yarn"}) {
    SCOPED_TRACE(folder);
    auto made = std::make_unique<ComparingBackend>(backend::CreateReference());
    const ComparingBackend& comparing = *made;
    const auto loaded = Must(engine::LoadedModel::Load(kModelDir + folder, std::move(made), GetParam()));
    const auto session = Must(engine::Session::Create(*loaded, {.context_max = 64, .activations = GetParam()}));
    const std::vector<TokenId> ids = {5, 17, 3, 99, 42, 42, 7};
    Must(session->Append({.ids = ids, .logits = engine::Logits::kAll}));
    EXPECT_GT(comparing.compared(), 20);
  }
}

TEST_P(Binding, SaysWhatTheOpsOfADraftSay) {
  const EngineOptions options{.model_directory = std::string(DI_SOURCE_DIR) + "/models/deepseek-v41-tiny",
                              .activations = std::string(engine::ActivationsName(GetParam())),
                              .drafts = "5",
                              .own_thread = false};
  auto made = std::make_unique<ComparingBackend>(Must(backend::CreateCpu({.num_threads = 2})));
  const ComparingBackend& comparing = *made;
  const auto engine = Must(engine::BatchEngine::Create(options, Must(engine::LoadedModel::Load(options.model_directory, std::move(made),
                                                                                               GetParam()))));
  bool finished = false;
  std::string why;
  ASSERT_NE(engine->Submit({.prompt = {5, 17, 3, 99, 42}, .max_tokens = 12, .ignore_eos = true},
                           [&](const Output& output) { finished |= output.finished; }, &why),
            0U)
      << why;
  while (!finished && engine->Step()) {
  }
  EXPECT_TRUE(finished);
  EXPECT_GT(engine->Stats().drafts_made, 0);
  EXPECT_GT(comparing.compared(), 100);
}

TEST(BindingCheck, AModelRunsWithNothingButWhatItWasLoadedFor) {
  const auto session = [](Activations loaded_for, Activations run) {
    const auto loaded = LoadFolder("base", {.name = "reference"}, loaded_for);
    const auto made = engine::Session::Create(*loaded, {.context_max = 64, .activations = run});
    return made.ok() ? std::string() : made.status().message();
  };
  EXPECT_EQ(session(Activations::kFp8, Activations::kBf16), "activations bf16: the model was loaded for fp8");
  EXPECT_EQ(session(Activations::kBf16, Activations::kFp32), "activations fp32: the model was loaded for bf16");
  EXPECT_EQ(session(Activations::kFp8, Activations::kFp8), "");
  EXPECT_EQ(session(Activations::kFp32, Activations::kFp8), "");
}

INSTANTIATE_TEST_SUITE_P(All, Binding, testing::Values(Activations::kFp32, Activations::kBf16, Activations::kFp8),
                         [](const auto& instance) { return std::string(engine::ActivationsName(instance.param)); });

}  // namespace
}  // namespace deepinfer::golden
