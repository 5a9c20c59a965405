// SPDX-License-Identifier: Apache-2.0
// Attention over window, chosen latents and sink (spec/model.md 3).
#include <algorithm>

#include "backend/cpu/cache.h"
#include "backend/cpu/ops.h"
#include "core/check.h"

namespace deepinfer::backend::cpu {
namespace {

// Neighbouring rows of one request that share decoded window keys.
constexpr int64_t kRowsTogether = 16;

// Decodes keys of one kind, a list at a time.
class Decoder {
 public:
  Decoder(int64_t keys_max, int64_t dim, Arena& arena)
      : dim_(dim),
        codes_(arena.Take<const uint8_t*>(keys_max)),
        scales_(arena.Take<const uint8_t*>(keys_max)),
        panels_(arena.Take<float>(KeyPanelFloats(keys_max, dim))) {}

  void Clear() { size_ = 0; }
  void Add(const uint8_t* codes, const uint8_t* scales) {
    codes_[size_] = codes;
    scales_[size_++] = scales;
  }
  // `decode` is the kernel for this kind of key.
  KeyPanels Decode(decltype(Kernels::window_panels) decode) {
    decode(codes_, scales_, size_, dim_, panels_);
    return {panels_, size_};
  }

 private:
  const int64_t dim_;
  const uint8_t** codes_;
  const uint8_t** scales_;
  float* panels_;
  int64_t size_ = 0;
};

// Runs of heads for neighbouring rows, on one thread.
class Attender {
 public:
  Attender(const Context& context, const AttentionParams& p, Arena& arena)
      : context_(context),
        p_(p),
        rows_(p.latent_cache),
        window_(p.window + kRowsTogether, p.dim, arena),
        latents_(p.has_latents ? p.topk : 0, p.dim, arena),
        q_(arena.Take<const float*>(p.heads)),
        out_(arena.Take<float*>(p.heads)),
        scores_(arena.Take<float*>(p.heads)) {
    const int64_t keys_max = p.window + kRowsTogether + (p.has_latents ? p.topk : 0);
    for (int64_t h = 0; h < p.heads; ++h) scores_[h] = arena.Take<float>(keys_max + 16);
  }

  // Rows [begin, end), all of one request and at most kRowsTogether; heads [first, last).
  void Run(int64_t begin, int64_t end, int64_t first, int64_t last) {
    int32_t low = WindowBegin(begin);
    for (int64_t r = begin + 1; r < end; ++r) low = std::min(low, WindowBegin(r));
    window_.Clear();
    for (int32_t j = low; j <= p_.positions[end - 1]; ++j) {
      const WindowRow row = FindWindowRow(p_.window_cache, p_.requests[begin], j);
      window_.Add(row.codes, row.scales);
    }
    const KeyPanels window = window_.Decode(context_.kernels.window_panels);
    for (int64_t r = begin; r < end; ++r) {
      for (int64_t h = first; h < last; ++h) {
        q_[h - first] = p_.q + (r * p_.heads + h) * p_.dim;
        out_[h - first] = p_.out + (r * p_.heads + h) * p_.dim;
      }
      context_.kernels.attend({.heads = last - first, .dim = p_.dim, .rope_dim = p_.rope_dim, .window = window,
                               .window_begin = WindowBegin(r) - low, .window_end = p_.positions[r] + 1 - low,
                               .latents = Latents(r), .q = q_, .sink = p_.sink + first,
                               .table = p_.table + r * p_.rope_dim, .scale = p_.scale, .scores = scores_, .out = out_});
    }
  }

 private:
  int32_t WindowBegin(int64_t r) const { return std::max({p_.positions[r] - p_.window + 1, p_.window_floor[r], 0}); }

  KeyPanels Latents(int64_t r) {
    latents_.Clear();
    for (int32_t c = 0; p_.has_latents && c < p_.selected_count[r]; ++c) {
      const GlobalRow row = rows_.Find(p_.requests[r], p_.selected[r * p_.topk + c]);
      latents_.Add(row.latent_codes, row.latent_scales);
    }
    return latents_.Decode(context_.kernels.latent_panels);
  }

  const Context& context_;
  const AttentionParams& p_;
  const GlobalRows rows_;
  Decoder window_;
  Decoder latents_;
  const float** q_;
  float** out_;
  float** scores_;
};

}  // namespace

void Attention(Context& context, const AttentionParams& p) {
  if (p.rows == 0) return;
  DI_CHECK(p.dim % 32 == 0);
  // Few rows: their heads are shared out too, in runs that fill a tile of the kernels.
  const int64_t runs = p.rows >= context.pool.size() ? 1 : std::max<int64_t>(1, p.heads / 4);
  const int64_t keys = p.window + (p.has_latents ? p.topk : 0);
  context.For(p.rows * runs, keys * p.dim * (p.heads / runs + 1) * 2, [&](int thread, int64_t begin, int64_t end) {
    Arena& arena = context.arena(thread);
    arena.Reset();
    Attender attender(context, p, arena);
    for (int64_t i = begin; i < end;) {
      const int64_t r = i / runs, run = i % runs;
      int64_t n = 1;
      const auto joins = [&](int64_t row) {
        return row < end && p.requests[row] == p.requests[r] && p.positions[row] == p.positions[row - 1] + 1;
      };
      while (runs == 1 && n < kRowsTogether && joins(r + n)) ++n;
      attender.Run(r, r + n, run * p.heads / runs, (run + 1) * p.heads / runs);
      i += n;
    }
  });
}

}  // namespace deepinfer::backend::cpu
