// SPDX-License-Identifier: Apache-2.0
// Properties, on the reference backend, every variant of the CPU backend and the CUDA backend. Against the golden vectors of
// tests/golden/dspark, within 1e-4: the trunk's taps, the context keys of every stage, and for each number of committed
// tokens the drafts, logits and confidences of the greedy chain and of a forced one. Bit for bit: a request gets the same
// alone and in a batch, with context stored at once or in pieces, and whatever earlier blocks left behind.
#include <map>
#include <numeric>

#include "backend/cpu/cpu_backend.h"
#include "model/deepseek_v41/dspark.h"
#include "numeric/formats.h"
#include "tests/model/golden.h"

namespace deepinfer::golden {
namespace {

using backend::Buffer;
using backend::WindowCache;
using engine::Logits;
using engine::Session;
using model::deepseek_v41::DraftAnchor;
using model::deepseek_v41::DraftModel;
using model::deepseek_v41::DraftWeights;
using model::deepseek_v41::Tap;

constexpr double kTolerance = 1e-4;
const std::string kDraftDir = std::string(DI_SOURCE_DIR) + "/tests/golden/dspark";
constexpr int32_t kCuts[] = {1, 2, 31, 33, 90};

// What a block gives one request.
struct Drafted {
  std::vector<int32_t> drafts;
  std::vector<float> logits, confidence;
  bool operator==(const Drafted&) const = default;
};

class Dspark : public testing::TestWithParam<std::string> {
 protected:
  // Rows of the page tables, and pages of each.
  static constexpr int32_t kRequests = 6, kPages = 3;

  Dspark() : vectors_(kDraftDir + "/golden.safetensors"), ids_(vectors_.Get<int32_t>("ids")) {}

  void SetUp() override {
    engine::BackendOptions options{.name = "reference"};
    if (GetParam() == "cuda") {
      if (const auto card = engine::CreateBackend({.name = "cuda"}); !card.ok()) GTEST_SKIP() << card.status().message();
      options = {.name = "cuda"};
    } else if (GetParam() != "reference") {
      const auto variants = backend::CpuVariants();
      if (std::find(variants.begin(), variants.end(), GetParam()) == variants.end()) {
        GTEST_SKIP() << "this machine has no " << GetParam();
      }
      options = {.name = "cpu", .num_threads = 2, .variant = GetParam()};
    }
    loaded_ = Must(engine::LoadedModel::Load(kDraftDir, options));
    weights_ = Must(model::deepseek_v41::BindDraftWeights(loaded_->checkpoint(), loaded_->weights(), device(), loaded_->activations()));
    draft_ = Must(DraftModel::Create(config(), weights_, device(), {.context_rows_max = 320, .requests_max = kRequests}));
    SetTaps(vectors_.Get<float>("taps"));
    AllocateWindows();
  }

  backend::Backend& device() { return loaded_->backend(); }
  const checkpoint::ModelConfig& config() const { return loaded_->config(); }
  size_t vocab() const { return static_cast<size_t>(config().vocab_size); }
  void SetTaps(const std::vector<float>& taps) { taps_ = Must(backend::Upload<float>(device(), taps)); }

  // Pages in no particular order. NaN everywhere, so that reading a row that nothing was stored in shows. The tables of
  // odd requests begin at `first_page`.
  void AllocateWindows(int32_t first_page = 0) {
    std::vector<int32_t> table(kRequests * kPages);
    for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<int32_t>(i * 7 % table.size());
    table_ = Must(backend::Upload<int32_t>(device(), table));
    std::vector<int32_t> first(kRequests);
    for (size_t r = 1; r < kRequests; r += 2) first[r] = first_page;
    first_page_ = Must(backend::Upload<int32_t>(device(), first));
    windows_.clear();
    pages_.clear();
    for (int64_t s = 0; s < draft_->num_stages(); ++s) {
      WindowCache cache{.pages = table_.as<int32_t>(),
                        .first_page = first_page_.as<int32_t>(),
                        .pages_stride = kPages,
                        .dim = static_cast<int32_t>(config().head_dim)};
      const std::vector<uint8_t> nan(static_cast<size_t>(cache.page_bytes()) * table.size(), 0xFF);
      pages_.push_back(Must(backend::Upload<uint8_t>(device(), nan)));
      cache.base = pages_.back().as<std::byte>();
      windows_.push_back(cache);
    }
  }

  template <typename T>
  void Fetch(const void* from, std::vector<T>* to) {
    device().CopyToHost(to->data(), from, to->size() * sizeof(T));
    Must(device().Synchronize());
  }

  // Context keys of positions [begin, end) of the golden sequence, over and over.
  void Store(int32_t request, int32_t begin, int32_t end) {
    std::vector<int32_t> positions(static_cast<size_t>(end - begin));
    std::iota(positions.begin(), positions.end(), begin);
    std::vector<int32_t> rows = positions;
    for (int32_t& row : rows) row %= 90;
    const std::vector<int32_t> requests(positions.size(), request);
    draft_->StoreContext({.taps = taps_.as<float>(), .tap_rows = rows, .positions = positions, .requests = requests}, windows_);
  }

  // Key of a stage at a position, decoded.
  std::vector<float> Key(size_t stage, int32_t request, int32_t position) {
    const auto dim = static_cast<size_t>(config().head_dim);
    const std::byte* page = windows_[stage].base + (request * kPages) * 7 % (kRequests * kPages) * windows_[stage].page_bytes();
    std::vector<uint8_t> codes(dim), scales(dim / 32);
    const auto slot = static_cast<size_t>(position);
    Fetch(page + slot * dim, &codes);
    Fetch(page + backend::kBlockTokens * dim + slot * (dim / 32), &scales);
    std::vector<float> key(dim);
    for (size_t i = 0; i < dim; ++i) key[i] = numeric::E4m3ToFloat(codes[i]) * numeric::E8m0ToFloat(scales[i / 32]);
    return key;
  }

  DraftAnchor AnchorAt(int32_t request, int32_t n, int32_t floor = 0) const {
    return {.request = request, .token = ids_[static_cast<size_t>(n) % ids_.size()], .position = n, .floor = floor};
  }

  // Runs the blocks of all anchors. Heads follow the best draft, or with `forced` the golden sequence.
  std::vector<Drafted> Draft(const std::vector<DraftAnchor>& anchors, bool forced = false) {
    const auto block = static_cast<size_t>(draft_->block_size());
    draft_->RunBlock(anchors, windows_, draft_->block_size());
    std::vector<Drafted> out(anchors.size());
    std::vector<int32_t> previous;
    for (const DraftAnchor& anchor : anchors) previous.push_back(anchor.token);
    std::vector<float> logits(anchors.size() * block * vocab()), confidence(anchors.size() * block);
    for (size_t j = 0; j < block; ++j) {
      draft_->Next(previous);
      Fetch(draft_->logits(), &logits);
      for (size_t r = 0; r < anchors.size(); ++r) {
        const auto row = std::span(logits).subspan((r * block + j) * vocab(), vocab());
        const auto best = static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin());
        out[r].drafts.push_back(best);
        out[r].logits.insert(out[r].logits.end(), row.begin(), row.end());
        previous[r] = forced ? ids_[static_cast<size_t>(anchors[r].position) + 1 + j] : best;
      }
    }
    Fetch(draft_->confidence(), &confidence);
    for (size_t r = 0; r < anchors.size(); ++r) {
      const auto first = confidence.begin() + static_cast<std::ptrdiff_t>(r * block);
      out[r].confidence.assign(first, first + static_cast<std::ptrdiff_t>(block));
    }
    return out;
  }

  // The same, drawn on the device.
  void ExpectChain(const std::vector<DraftAnchor>& anchors, const std::vector<Drafted>& expected) {
    if (!device().can_sample()) return;
    const auto block = static_cast<size_t>(draft_->block_size());
    for (const size_t drafts : {block, block - 1}) {
      const std::vector<backend::SampleDraw> plain(anchors.size() * drafts);
      const std::vector<backend::AdjustedDraw> adjusted(plain.size());
      for (int round = 0; round < 6; ++round) {  // each queued, recorded, replayed
        model::deepseek_v41::ChainDraws draws;
        if (round % 2 == 0) {
          draws.plain = plain;
        } else {
          draws.adjusted = adjusted;
        }
        draft_->RunChain(anchors, windows_, static_cast<int64_t>(drafts), draws);
        std::vector<float> confidence(plain.size());
        Fetch(draft_->confidence(), &confidence);
        for (size_t j = 0; j < drafts; ++j) {
          std::vector<int32_t> tokens(anchors.size());
          Fetch(draft_->tokens(static_cast<int64_t>(j)), &tokens);
          for (size_t r = 0; r < anchors.size(); ++r) {
            EXPECT_EQ(tokens[r], expected[r].drafts[j]) << drafts << " drafts, round " << round;
            EXPECT_EQ(confidence[r * drafts + j], expected[r].confidence[j]) << drafts << " drafts, round " << round;
          }
        }
      }
    }
  }

  void ExpectGolden(const Drafted& drafted, int32_t n, bool forced) {
    const std::string prefix = forced ? "forced_" : "", suffix = "." + std::to_string(n);
    EXPECT_LE(MaxDifference(drafted.logits, vectors_.Get<float>(prefix + "logits" + suffix)), kTolerance) << prefix << n;
    EXPECT_LE(MaxDifference(drafted.confidence, vectors_.Get<float>(prefix + "confidence" + suffix)), kTolerance) << prefix << n;
    if (!forced) {
      EXPECT_EQ(drafted.drafts, vectors_.Get<int32_t>("drafts" + suffix));
    }
  }

  // Taps of a run of the trunk over the first 90 tokens, by position.
  std::map<int32_t, std::vector<float>> TrunkTaps(int64_t chunk, Logits wanted) {
    const auto session =
        Must(Session::Create(*loaded_, {.context_max = 128, .chunk = chunk, .draft_taps = true}));
    std::map<int32_t, std::vector<float>> taps;
    int32_t begin = 0;
    session->set_tap([&](Tap tap, int64_t, std::span<const int32_t> rows, const void* data, int64_t row_bytes) {
      if (tap != Tap::kDraftTaps) return;
      const auto width = static_cast<size_t>(row_bytes) / sizeof(float);
      std::vector<float> values(rows.size() * width);
      Fetch(data, &values);
      for (size_t i = 0; i < rows.size(); ++i) {
        const float* row = values.data() + i * width;
        taps[begin + rows[i]].assign(row, row + width);
      }
      begin += static_cast<int32_t>(chunk);
    });
    Must(session->Append({.ids = std::span(ids_).first(90), .logits = wanted}));
    return taps;
  }

  Vectors vectors_;
  std::vector<int32_t> ids_;
  std::unique_ptr<engine::LoadedModel> loaded_;
  DraftWeights weights_;
  std::unique_ptr<DraftModel> draft_;
  Buffer taps_, table_, first_page_;
  std::vector<Buffer> pages_;
  std::vector<WindowCache> windows_;
};

TEST_P(Dspark, TapsOfTheTrunk) {
  const auto golden = vectors_.Get<float>("taps");
  const size_t width = golden.size() / 90;
  const auto all = TrunkTaps(128, Logits::kAll);
  ASSERT_EQ(all.size(), 90u);
  for (const auto& [position, row] : all) {
    EXPECT_LE(MaxDifference(row, std::span(golden).subspan(static_cast<size_t>(position) * width, width)), kTolerance)
        << position;
  }
  EXPECT_EQ(TrunkTaps(7, Logits::kAll), all);
  // Where only the last logits are wanted, later layers run fewer rows: enough for the draft's window, and the same bits.
  const auto last = TrunkTaps(128, Logits::kLast);
  EXPECT_LT(last.size(), all.size());
  for (int32_t p = 90 - static_cast<int32_t>(config().window); p < 90; ++p) {
    ASSERT_TRUE(last.contains(p)) << p;
    EXPECT_EQ(last.at(p), all.at(p)) << p;
  }
}

TEST_P(Dspark, ContextKeys) {
  Store(0, 0, 90);
  Store(2, 0, 1);
  Store(2, 1, 40);
  Store(2, 40, 90);
  for (size_t s = 0; s < windows_.size(); ++s) {
    const auto golden = vectors_.Get<float>("context." + std::to_string(s));
    const auto dim = static_cast<size_t>(config().head_dim);
    for (int32_t p = 0; p < 90; ++p) {
      const auto key = Key(s, 0, p);
      EXPECT_LE(MaxDifference(key, std::span(golden).subspan(static_cast<size_t>(p) * dim, dim)), kTolerance)
          << "stage " << s << " position " << p;
      EXPECT_EQ(Key(s, 2, p), key);
    }
  }
}

TEST_P(Dspark, GreedyAndForcedChains) {
  for (const int32_t n : kCuts) {
    AllocateWindows();
    Store(1, 0, n);
    ExpectGolden(Draft({AnchorAt(1, n)})[0], n, false);
    ExpectGolden(Draft({AnchorAt(1, n)}, true)[0], n, true);
  }
}

TEST_P(Dspark, FromTheTrunkToTheDrafts) {
  std::vector<float> taps;
  for (const auto& [position, row] : TrunkTaps(128, Logits::kAll)) taps.insert(taps.end(), row.begin(), row.end());
  SetTaps(taps);
  for (const int32_t n : kCuts) {
    Store(0, 0, n);
    ExpectGolden(Draft({AnchorAt(0, n)})[0], n, false);
  }
}

TEST_P(Dspark, BatchesGiveTheBitsOfOneAlone) {
  std::vector<Drafted> alone;
  for (size_t i = 0; i < std::size(kCuts); ++i) {
    AllocateWindows();
    Store(3, 0, kCuts[i]);
    alone.push_back(Draft({AnchorAt(3, kCuts[i])})[0]);
  }
  AllocateWindows();
  // All contexts in one call, then all blocks, in another order of requests.
  std::vector<int32_t> rows, requests;
  std::vector<DraftAnchor> anchors;
  for (int32_t request = 0; request < 5; ++request) {
    const int32_t n = kCuts[4 - request];
    for (int32_t p = 0; p < n; ++p) {
      rows.push_back(p);
      requests.push_back(request);
    }
    anchors.push_back(AnchorAt(request, n));
  }
  draft_->StoreContext({.taps = taps_.as<float>(), .tap_rows = rows, .positions = rows, .requests = requests}, windows_);
  const std::vector<Drafted> together = Draft(anchors);
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(together[i], alone[4 - i]) << kCuts[4 - i];
  ExpectChain(anchors, together);
  ExpectChain({anchors[2]}, {together[2]});
}

// Cycles of a generation: blocks leave keys behind, rows are committed one to six at a time, across the window's length.
TEST_P(Dspark, BlocksLeaveNothingBehind) {
  Store(0, 0, 1);
  for (int32_t n = 1; n <= 90;) {
    const Drafted drafted = Draft({AnchorAt(0, n)})[0];
    Store(4, 0, n);
    EXPECT_EQ(drafted, Draft({AnchorAt(4, n)})[0]) << n;
    const int32_t next = n + 1 + n % 6;
    if (next <= 90) Store(0, n, next);
    n = next;
  }
}

// Nothing outside [floor, anchor) is read: with the rows there all NaN, results are numbers, and they depend on the floor.
TEST_P(Dspark, ContextBeginsAtTheFloor) {
  const int32_t window = static_cast<int32_t>(config().window);
  std::vector<Drafted> seen;
  for (const int32_t floor : {90, 89, 80, 90 - window}) {
    AllocateWindows();
    if (floor < 90) Store(0, floor, 90);
    const Drafted drafted = Draft({AnchorAt(0, 90, floor)})[0];
    for (const float x : drafted.logits) ASSERT_TRUE(std::isfinite(x)) << floor;
    for (const Drafted& other : seen) EXPECT_NE(drafted.logits, other.logits) << floor;
    seen.push_back(drafted);
  }
  ExpectGolden(seen.back(), 90, false);
  Store(5, 0, 90);
  EXPECT_EQ(Draft({AnchorAt(5, 90)})[0], seen.back());  // the window, not the floor, is the limit
}

// Windows and blocks across page borders, and after the first page was given back.
TEST_P(Dspark, AcrossPages) {
  for (const int32_t n : {122, 124, 127, 128, 129, 159, 160, 255, 256, 257, 300}) {
    const int32_t first = n - static_cast<int32_t>(config().window);
    AllocateWindows(first / backend::kBlockTokens);
    Store(0, 0, n);
    Store(1, first, n);
    const Drafted whole = Draft({AnchorAt(0, n)})[0];
    for (const float x : whole.logits) ASSERT_TRUE(std::isfinite(x)) << n;
    EXPECT_EQ(Draft({AnchorAt(1, n)})[0], whole) << n;
    // Another key at the newest position, or at the oldest, gives another draft: both were read.
    for (const int32_t position : {n - 1, first}) {
      Store(1, first, n);
      const std::vector<int32_t> row = {(position + 1) % 90}, positions = {position}, requests = {1};
      draft_->StoreContext({.taps = taps_.as<float>(), .tap_rows = row, .positions = positions, .requests = requests}, windows_);
      EXPECT_NE(Draft({AnchorAt(1, n)})[0], whole) << n << " " << position;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Dspark, testing::Values("reference", "avx512", "avx2", "portable", "cuda"),
                         [](const auto& instance) { return instance.param; });

TEST(DsparkWeights, CheckpointWithoutADraft) {
  const auto loaded = LoadFolder("base", {.name = "reference"});
  const auto weights =
      model::deepseek_v41::BindDraftWeights(loaded->checkpoint(), loaded->weights(), loaded->backend(), loaded->activations());
  ASSERT_FALSE(weights.ok());
  EXPECT_EQ(weights.status().code(), Code::kNotFound);
}

}  // namespace
}  // namespace deepinfer::golden
