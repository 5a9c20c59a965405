// SPDX-License-Identifier: Apache-2.0
// Property: writing the caches, the compressor, index selection and attention agree with the reference backend on ragged
// batches of several requests; bits depend neither on the batch nor on the number of threads.
#include <algorithm>
#include <numeric>

#include "backend/cpu/testing.h"
#include "backend/reference/reference_backend.h"

namespace deepinfer::backend::cpu {
namespace {

// Requests with caches of random, valid bytes in shuffled pages.
struct Caches {
  Caches(Random& random, int requests_in, int32_t tokens_in, int32_t ratio, int32_t dim, int32_t index_dim)
      : requests(requests_in), tokens(tokens_in) {
    const int32_t pages = tokens / kBlockTokens + 2;
    page_ids.resize(static_cast<size_t>(requests * pages));
    std::iota(page_ids.begin(), page_ids.end(), 0);
    for (size_t i = 1; i < page_ids.size(); ++i) {
      std::swap(page_ids[i], page_ids[static_cast<size_t>(random.Int(0, static_cast<int64_t>(i)))]);
    }
    block_ids = page_ids;
    std::reverse(block_ids.begin(), block_ids.end());
    first_page.assign(static_cast<size_t>(requests), 0);
    window = {.base = nullptr, .pages = page_ids.data(), .first_page = first_page.data(), .pages_stride = pages, .dim = dim};
    global = {.base = nullptr, .blocks = block_ids.data(), .blocks_stride = pages, .ratio = ratio, .dim = dim, .index_dim = index_dim};
    window_bytes.resize(page_ids.size() * static_cast<size_t>(window.page_bytes()));
    global_bytes.resize(block_ids.size() * static_cast<size_t>(global.block_bytes()));
    window.base = reinterpret_cast<std::byte*>(window_bytes.data());
    global.base = reinterpret_cast<std::byte*>(global_bytes.data());
    FillWindow(random);
    FillGlobal(random);
  }

  void FillWindow(Random& random) {
    const int64_t page = window.page_bytes(), codes = int64_t{kBlockTokens} * window.dim;
    for (size_t i = 0; i < window_bytes.size(); ++i) {
      const int64_t at = static_cast<int64_t>(i) % page;
      window_bytes[i] = at < codes ? static_cast<uint8_t>(random.Int(0, 0x7E) | random.Int(0, 1) << 7)
                                   : static_cast<uint8_t>(random.Int(117, 121));
    }
  }
  void FillGlobal(Random& random) {
    for (size_t i = 0; i < global_bytes.size(); ++i) {
      const int64_t at = static_cast<int64_t>(i) % global.block_bytes();
      uint8_t byte = static_cast<uint8_t>(random.Int(0, 255));
      if (at >= global.latent_scales_offset() && at < global.index_codes_offset()) byte = static_cast<uint8_t>(random.Int(0x20, 0x38));
      if (at >= global.index_scales_offset()) byte = static_cast<uint8_t>(random.Int(124, 127));
      global_bytes[i] = byte;
    }
  }

  int requests;
  int32_t tokens;
  std::vector<int32_t> page_ids, block_ids, first_page;
  std::vector<uint8_t> window_bytes, global_bytes;
  WindowCache window;
  GlobalCache global;
};

// Rows of a ragged batch.
struct Batch {
  std::vector<int32_t> positions, requests;
  int64_t rows() const { return static_cast<int64_t>(positions.size()); }
  void Add(int32_t request, int32_t begin, int32_t end) {
    for (int32_t p = begin; p < end; ++p) {
      positions.push_back(p);
      requests.push_back(request);
    }
  }
};

Batch RaggedBatch() {
  Batch batch;
  batch.Add(0, 0, 7);
  batch.Add(1, 299, 300);
  batch.Add(2, 100, 180);
  batch.Add(3, 511, 514);
  return batch;
}

class CpuCaches : public testing::TestWithParam<std::string_view> {};

// Codes differ where a value tips over a rounding boundary: rarely, and by one step. Values that need no arithmetic
// before the quantiser (no rotation, unit norm) give equal bytes.
int64_t CountDifferences(const std::vector<uint8_t>& a, const std::vector<uint8_t>& b) {
  int64_t n = 0;
  for (size_t i = 0; i < a.size(); ++i) n += a[i] != b[i];
  return n;
}

TEST_P(CpuCaches, StoresAgreeWithReference) {
  Random random(1);
  const Batch batch = RaggedBatch();
  const int64_t rows = batch.rows();
  const int32_t dim = 96, index_dim = 64;
  const auto kv = random.Wide(rows * (dim + 2)), weight = random.Normals(dim), latent = random.Wide(rows * dim);
  const auto key = random.Wide(rows * index_dim);
  std::vector<float> table;
  for (int64_t i = 0; i < rows * 16; ++i) {
    const float angle = random.Normal();
    table.push_back(std::cos(angle));
    table.push_back(std::sin(angle));
  }
  for (const int32_t ratio : {1, 2}) {
    const Caches empty(random, 4, 1024, ratio, dim, index_dim);
    const auto run = [&](Backend& backend) {
      auto caches = std::make_unique<Caches>(empty);
      caches->window.base = reinterpret_cast<std::byte*>(caches->window_bytes.data());
      caches->global.base = reinterpret_cast<std::byte*>(caches->global_bytes.data());
      backend.StoreWindow({.rows = rows, .rope_dim = 32, .kv = kv.data(), .kv_stride = dim + 2, .norm_weight = weight.data(),
                           .norm_eps = 1e-20f, .table = table.data(), .positions = batch.positions.data(),
                           .requests = batch.requests.data(), .cache = caches->window});
      backend.StoreLatent({.latents = rows, .rope_dim = 32, .latent = latent.data(), .table = table.data(),
                           .index = batch.positions.data(), .requests = batch.requests.data(), .cache = caches->global});
      backend.StoreIndexKey({.latents = rows, .rope_dim = 32, .key = key.data(), .norm_weight = weight.data(),
                             .norm_eps = 1e-20f, .table = table.data(), .index = batch.positions.data(),
                             .requests = batch.requests.data(), .cache = caches->global});
      return caches;
    };
    const auto want = run(*CreateReference());
    const auto one = run(*Make(GetParam(), 1));
    EXPECT_LE(CountDifferences(one->window_bytes, want->window_bytes), 1);
    EXPECT_LE(CountDifferences(one->global_bytes, want->global_bytes), 1);
    EXPECT_GT(CountDifferences(want->window_bytes, empty.window_bytes), rows);
    for (int threads = 2; threads <= 4; ++threads) {
      const auto got = run(*Make(GetParam(), threads));
      ExpectSameBytes(got->window_bytes, one->window_bytes, "window");
      ExpectSameBytes(got->global_bytes, one->global_bytes, "global");
    }
  }
}

// Tokens of two requests in chunks of every size: latents equal those of one chunk, and agree with the reference.
TEST_P(CpuCaches, CompressAcrossChunks) {
  Random random(2);
  const int64_t dim = 48;
  for (const int32_t ratio : {1, 2, 4}) {
    const int32_t tokens = 24, ring = 5;
    const auto kv = random.Normals(2 * tokens * dim), gate = random.Normals(2 * tokens * dim, 3.0f), weight = random.Normals(dim);
    const std::vector<int32_t> slots = {1, 0};
    const auto run = [&](Backend& backend, int32_t chunk) {
      std::vector<float> state(static_cast<size_t>(2 * ring * 2 * dim), -777.25f), all(static_cast<size_t>(2 * tokens / ratio * dim));
      for (int32_t begin = 0; begin < tokens; begin += chunk) {
        Batch batch;
        std::vector<float> kv_in, gate_in;
        std::vector<int32_t> last;
        std::vector<size_t> to;
        const int32_t end = std::min(begin + chunk, tokens);
        for (int32_t q = 0; q < 2; ++q) {
          for (int32_t p = begin; p < end; ++p) {
            const int64_t at = (q * tokens + p) * dim;
            if ((p + 1) % ratio == 0) {
              last.push_back(static_cast<int32_t>(batch.rows()));
              to.push_back(static_cast<size_t>((q * tokens + p) / ratio * dim));
            }
            batch.Add(q, p, p + 1);
            kv_in.insert(kv_in.end(), kv.begin() + at, kv.begin() + at + dim);
            gate_in.insert(gate_in.end(), gate.begin() + at, gate.begin() + at + dim);
          }
        }
        auto out = Poisoned(static_cast<int64_t>(last.size()) * dim);
        backend.Compress({.rows = batch.rows(), .latents = static_cast<int64_t>(last.size()), .ratio = ratio, .ring = ring,
                          .dim = dim, .kv = kv_in.data(), .gate = ratio == 1 ? nullptr : gate_in.data(),
                          .last_row = last.data(), .positions = batch.positions.data(), .requests = batch.requests.data(),
                          .ring_slots = slots.data(), .state = state.data(), .norm_weight = weight.data(),
                          .norm_eps = 1e-20f, .out = out.data()});
        for (size_t i = 0; i < to.size(); ++i) std::copy_n(out.data() + static_cast<int64_t>(i) * dim, dim, all.data() + to[i]);
      }
      return all;
    };
    const auto whole = run(*Make(GetParam(), 1), tokens);
    ExpectNear(whole, run(*CreateReference(), tokens), 1e-6, "compress");
    for (int threads = 1; threads <= 4; ++threads) {
      const auto backend = Make(GetParam(), threads);
      for (const int32_t chunk : {1, 2, 3, 5, 7, 24}) ExpectSameBytes(run(*backend, chunk), whole, "chunks");
    }
  }
}

struct Selection {
  std::vector<int32_t> selected, count, blocks, block_count;
};

struct IndexCase {
  int64_t heads;
  int64_t topk;
  Candidates candidates;
  int64_t block_size;
  int64_t blocks_max;
};

Selection Select(Backend& backend, const Caches& caches, const Batch& batch, const IndexCase& c, const std::vector<float>& q,
                 const std::vector<float>& weights, const Selection* published, int64_t first, int64_t rows) {
  Selection s;
  s.selected.assign(static_cast<size_t>(rows * c.topk), -7);
  s.count.assign(static_cast<size_t>(rows), -7);
  s.blocks.assign(static_cast<size_t>(rows * c.blocks_max), -7);
  s.block_count.assign(static_cast<size_t>(rows), -7);
  if (published != nullptr) {
    s.blocks.assign(published->blocks.begin() + first * c.blocks_max, published->blocks.begin() + (first + rows) * c.blocks_max);
    s.block_count.assign(published->block_count.begin() + first, published->block_count.begin() + first + rows);
  }
  backend.IndexSelect({.rows = rows, .heads = c.heads, .q = q.data() + first * c.heads * caches.global.index_dim,
                       .weights = weights.data() + first * c.heads, .weight_scale = 0.5f, .score_scale = 0.125f,
                       .positions = batch.positions.data() + first, .requests = batch.requests.data() + first,
                       .cache = caches.global, .topk = c.topk, .candidates = c.candidates, .block_size = c.block_size,
                       .blocks_max = c.blocks_max, .blocks = s.blocks.data(), .block_count = s.block_count.data(),
                       .selected = s.selected.data(), .selected_count = s.count.data()});
  return s;
}

void ExpectSameSelection(const Selection& got, const Selection& want, const char* what) {
  EXPECT_EQ(got.selected, want.selected) << what;
  EXPECT_EQ(got.count, want.count) << what;
  EXPECT_EQ(got.blocks, want.blocks) << what;
  EXPECT_EQ(got.block_count, want.block_count) << what;
}

// Queries of small integers and keys of one scale: sums are exact, ties are many, and the choice must be the reference's.
TEST_P(CpuCaches, IndexSelectAgreesWithReference) {
  Random random(3);
  const Batch batch = RaggedBatch();
  const int64_t rows = batch.rows();
  const IndexCase cases[] = {{4, 64, Candidates::kNone, 0, 0},    {1, 5, Candidates::kNone, 0, 0},
                             {4, 16, Candidates::kPublish, 8, 6}, {3, 600, Candidates::kPublish, 4, 5},
                             {2, 7, Candidates::kPublish, 8, 100}};
  for (const int32_t ratio : {1, 2}) {
    Caches caches(random, 4, 1024, ratio, 32, 64);
    for (uint8_t& byte : caches.global_bytes) byte = random.Int(0, 2) == 0 ? byte : 0;
    for (size_t i = 0; i < caches.global_bytes.size(); ++i) {
      if (static_cast<int64_t>(i) % caches.global.block_bytes() >= caches.global.index_scales_offset()) caches.global_bytes[i] = 127;
    }
    for (const IndexCase& c : cases) {
      std::vector<float> q(static_cast<size_t>(rows * c.heads * 64)), weights(static_cast<size_t>(rows * c.heads));
      for (float& x : q) x = random.Int(0, 5) == 0 ? static_cast<float>(random.Int(-2, 2)) : 0.0f;
      for (float& w : weights) w = static_cast<float>(random.Int(-2, 3));
      const auto reference = CreateReference();
      const Selection want = Select(*reference, caches, batch, c, q, weights, nullptr, 0, rows);
      for (int threads = 1; threads <= 4; ++threads) {
        const auto backend = Make(GetParam(), threads);
        ExpectSameSelection(Select(*backend, caches, batch, c, q, weights, nullptr, 0, rows), want, "all");
        if (c.candidates != Candidates::kPublish) continue;
        IndexCase later = c;
        later.candidates = Candidates::kRestrict;
        const Selection restricted = Select(*reference, caches, batch, later, q, weights, &want, 0, rows);
        ExpectSameSelection(Select(*backend, caches, batch, later, q, weights, &want, 0, rows), restricted, "restricted");
      }
    }
  }
}

TEST_P(CpuCaches, IndexSelectDependsOnTheRowAlone) {
  Random random(4);
  const Batch batch = RaggedBatch();
  const int64_t rows = batch.rows();
  const Caches caches(random, 4, 1024, 1, 32, 64);
  const IndexCase c = {4, 40, Candidates::kPublish, 8, 20};
  auto q = random.Normals(rows * 4 * 64);
  const auto weights = random.Normals(rows * 4);
  const auto one = Make(GetParam(), 1);
  Selection want;
  for (int64_t r = 0; r < rows; ++r) {
    const Selection s = Select(*one, caches, batch, c, q, weights, nullptr, r, 1);
    want.selected.insert(want.selected.end(), s.selected.begin(), s.selected.end());
    want.count.insert(want.count.end(), s.count.begin(), s.count.end());
    want.blocks.insert(want.blocks.end(), s.blocks.begin(), s.blocks.end());
    want.block_count.insert(want.block_count.end(), s.block_count.begin(), s.block_count.end());
  }
  for (int threads = 1; threads <= 4; ++threads) {
    ExpectSameSelection(Select(*Make(GetParam(), threads), caches, batch, c, q, weights, nullptr, 0, rows), want, "batch");
  }
}

struct AttentionCase {
  int64_t heads;
  int32_t dim;
  int64_t rope_dim;
  int32_t window;
  int64_t topk;  // 0: no latents
  int32_t ratio;
};

TEST_P(CpuCaches, Attention) {
  Random random(5);
  const Batch batch = RaggedBatch();
  const int64_t rows = batch.rows();
  const AttentionCase cases[] = {{4, 128, 32, 128, 64, 2}, {1, 32, 2, 16, 0, 1}, {7, 64, 22, 1, 5, 1}, {9, 160, 64, 130, 33, 2}};
  for (const AttentionCase& c : cases) {
    const Caches caches(random, 4, 1024, c.ratio, c.dim, 32);
    const auto q = random.Normals(rows * c.heads * c.dim, 0.3f);
    std::vector<float> table, sink = random.Normals(c.heads);
    sink[0] = -INFINITY;
    for (int64_t i = 0; i < rows * c.rope_dim / 2; ++i) {
      const float angle = random.Normal();
      table.push_back(std::cos(angle));
      table.push_back(std::sin(angle));
    }
    std::vector<int32_t> floors(static_cast<size_t>(rows)), selected(static_cast<size_t>(rows * c.topk), -1);
    std::vector<int32_t> count(static_cast<size_t>(rows));
    for (int64_t r = 0; r < rows; ++r) {
      const auto at = static_cast<size_t>(r);
      floors[at] = random.Int(0, 2) == 0 ? batch.positions[at] - static_cast<int32_t>(random.Int(0, 20)) : 0;
      std::vector<int32_t> visible(static_cast<size_t>((batch.positions[at] + 1) / c.ratio));
      std::iota(visible.begin(), visible.end(), 0);
      std::vector<int32_t> some;
      for (const int32_t j : visible) {
        if (static_cast<int64_t>(some.size()) < c.topk && random.Int(0, 3) == 0) some.push_back(j);
      }
      std::copy(some.begin(), some.end(), selected.begin() + r * c.topk);
      count[at] = static_cast<int32_t>(some.size());
    }
    const auto run = [&](Backend& backend, int64_t first, int64_t n) {
      auto out = Poisoned(n * c.heads * c.dim);
      backend.Attention({.rows = n, .heads = c.heads, .dim = c.dim, .rope_dim = c.rope_dim,
                         .q = q.data() + first * c.heads * c.dim, .table = table.data() + first * c.rope_dim,
                         .positions = batch.positions.data() + first, .requests = batch.requests.data() + first,
                         .window = c.window, .window_floor = floors.data() + first, .window_cache = caches.window,
                         .has_latents = c.topk > 0, .latent_cache = caches.global, .topk = c.topk,
                         .selected = selected.data() + first * c.topk, .selected_count = count.data() + first,
                         .sink = sink.data(), .scale = 0.2f, .out = out.data()});
      return out;
    };
    const auto one = Make(GetParam(), 1);
    ExpectNear(run(*one, 0, rows), run(*CreateReference(), 0, rows), 5e-6, "attention");
    std::vector<float> alone;
    for (int64_t r = 0; r < rows; ++r) {
      const auto y = run(*one, r, 1);
      alone.insert(alone.end(), y.begin(), y.end());
    }
    for (int threads = 1; threads <= 4; ++threads) {
      const auto backend = Make(GetParam(), threads);
      EXPECT_TRUE(run(*backend, 0, 0).empty());
      for (const int64_t n : {int64_t{1}, int64_t{2}, int64_t{3}, int64_t{5}, int64_t{16}, int64_t{17}, int64_t{64}, rows}) {
        const std::vector<float> want(alone.begin(), alone.begin() + n * c.heads * c.dim);
        ExpectSameBytes(run(*backend, 0, n), want, "batch");
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Variants, CpuCaches, testing::ValuesIn(CpuVariants()),
                         [](const auto& variant) { return std::string(variant.param); });

}  // namespace
}  // namespace deepinfer::backend::cpu
