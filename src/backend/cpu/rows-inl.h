// SPDX-License-Identifier: Apache-2.0
// Kernels on single rows: norms, rotation, hyper-connections, gates, input rounding.
// Included after one of simd_*.h, math-inl.h and dot-inl.h.
#pragma once

namespace deepinfer::backend::cpu {
namespace {

// Sums over long rows run in four Vec, so that rounding grows with n / 64; joined ((0 + 1) + (2 + 3)).
float SumOfSquares(const float* x, int64_t n) {
  Vec sum[4] = {Set(0.0f), Set(0.0f), Set(0.0f), Set(0.0f)};
  int64_t i = 0;
  for (; i + 64 <= n; i += 64) {
    for (int j = 0; j < 4; ++j) {
      const Vec v = Load(x + i + 16 * j);
      sum[j] = MulAdd(v, v, sum[j]);
    }
  }
  for (int j = 0; i < n; i += 16, ++j) {
    const Vec v = LoadPart(x + i, n - i);
    sum[j] = MulAdd(v, v, sum[j]);
  }
  return ReduceAdd((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

// 1 / sqrt(mean + eps) of a sum of squares.
float InverseRms(float sum, int64_t n, float eps) {
  return static_cast<float>(1.0 / __builtin_sqrt(double{sum} / static_cast<double>(n) + double{eps}));
}

void Scale(const float* x, float scale, const float* weight, int64_t n, float* y) {
  const Vec s = Set(scale);
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) Store(y + i, Load(x + i) * s * Load(weight + i));
  if (i < n) StorePart(y + i, LoadPart(x + i, n - i) * s * LoadPart(weight + i, n - i), n - i);
}

void RmsNorm(const float* x, const float* weight, float eps, int64_t n, float* y) {
  Scale(x, InverseRms(SumOfSquares(x, n), n, eps), weight, n, y);
}

void RoundRowToBf16(const float* x, int64_t n, float* out) {
  for (int64_t i = 0; i < n; i += 16) StorePart(out + i, RoundToBf16(LoadPart(x + i, n - i)), n - i);
}

void Rope(float* x, int64_t dim, int64_t rope_dim, const float* table) {
  float* tail = x + dim - rope_dim;
  for (int64_t i = 0; i < rope_dim; i += 16) {
    StorePart(tail + i, RotatePairs(LoadPart(tail + i, rope_dim - i), LoadPart(table + i, rope_dim - i)), rope_dim - i);
  }
}

void RopeBack(float* x, int64_t dim, int64_t rope_dim, const float* table) {
  float* tail = x + dim - rope_dim;
  for (int64_t i = 0; i < rope_dim; i += 16) {
    StorePart(tail + i, RotatePairsBack(LoadPart(tail + i, rope_dim - i), LoadPart(table + i, rope_dim - i)),
              rope_dim - i);
  }
}

void SwiGlu(const float* g, const float* u, float weight, float limit, int64_t n, float* h) {
  for (int64_t i = 0; i < n; i += 16) {
    const Vec gate = Min(Set(limit), LoadPart(g + i, n - i));
    const Vec up = Min(Set(limit), Max(Set(-limit), LoadPart(u + i, n - i)));
    StorePart(h + i, Set(weight) * (gate / (Set(1.0f) + Exp(Set(0.0f) - gate))) * up, n - i);
  }
}

void SqrtSoftplus(float* x, int64_t n) {
  for (int64_t i = 0; i < n; i += 16) StorePart(x + i, Sqrt(Softplus(LoadPart(x + i, n - i))), n - i);
}

void SigmoidRow(float* x, int64_t n) {
  for (int64_t i = 0; i < n; i += 16) StorePart(x + i, Sigmoid(LoadPart(x + i, n - i)), n - i);
}

// sum over streams of weights[s] * x[s], then rms.
void HcCollapse(const HcRowArgs& a) {
  for (int64_t i = 0; i < a.hidden; i += 16) {
    const int64_t n = a.hidden - i;
    Vec sum = Set(a.weights[0]) * LoadPart(a.x + i, n);
    for (int64_t s = 1; s < a.streams; ++s) sum = MulAdd(Set(a.weights[s]), LoadPart(a.x + s * a.hidden + i, n), sum);
    StorePart(a.out + i, sum, n);
  }
  Scale(a.out, InverseRms(SumOfSquares(a.out, a.hidden), a.hidden, a.eps), a.norm_weight, a.hidden, a.out);
}

void HcExpand(const float* y, const float* post, const float* comb, int64_t streams, int64_t hidden, float* x) {
  for (int64_t i = 0; i < hidden; i += 16) {
    const int64_t n = hidden - i;
    const Vec in = LoadPart(y + i, n);
    Vec old[kStreamsMax];
    for (int64_t j = 0; j < streams; ++j) old[j] = LoadPart(x + j * hidden + i, n);
    for (int64_t k = 0; k < streams; ++k) {
      Vec sum = Set(post[k]) * in;
      for (int64_t j = 0; j < streams; ++j) sum = MulAdd(Set(comb[j * streams + k]), old[j], sum);
      StorePart(x + k * hidden + i, sum, n);
    }
  }
}

void EngramSums(const float* x, const float* w, const float* key, int64_t n, float* sums) {
  Vec dot = Set(0.0f);
  for (int64_t i = 0; i < n; i += 16) {
    dot = MulAdd(LoadPart(x + i, n - i) * LoadPart(w + i, n - i), LoadPart(key + i, n - i), dot);
  }
  sums[0] = ReduceAdd(dot);
  sums[1] = SumOfSquares(x, n);
  sums[2] = SumOfSquares(key, n);
}

void AddScaled(const float* value, float gate, int64_t n, float* x) {
  for (int64_t i = 0; i < n; i += 16) {
    StorePart(x + i, MulAdd(Set(gate), LoadPart(value + i, n - i), LoadPart(x + i, n - i)), n - i);
  }
}

// Per channel: softmax of the gates over the tokens, weighted sum of kv; oldest token first.
void Pool(const float* const* kv, const float* const* gate, int32_t tokens, int64_t n, float* out) {
  for (int64_t i = 0; i < n; i += 16) {
    Vec top = LoadPart(gate[0] + i, n - i);
    for (int32_t t = 1; t < tokens; ++t) top = Max(top, LoadPart(gate[t] + i, n - i));
    Vec sum = Set(0.0f), value = Set(0.0f);
    for (int32_t t = 0; t < tokens; ++t) {
      const Vec weight = Exp(LoadPart(gate[t] + i, n - i) - top);
      sum = sum + weight;
      value = MulAdd(weight, LoadPart(kv[t] + i, n - i), value);
    }
    StorePart(out + i, value / sum, n - i);
  }
}

// Any number of streams, in plain loops.
void SinkhornLoops(float* c, int64_t n, float eps, int iters) {
  float row[kStreamsMax];
  for (int64_t j = 0; j < n; ++j) {
    float top = c[j * n];
    for (int64_t k = 1; k < n; ++k) top = c[j * n + k] > top ? c[j * n + k] : top;
    StorePart(row, Exp(LoadPart(c + j * n, n) - Set(top)), n);
    float sum = 0.0f;
    for (int64_t k = 0; k < n; ++k) sum += row[k];
    for (int64_t k = 0; k < n; ++k) c[j * n + k] = row[k] / sum + eps;
  }
  const auto normalise = [&](int64_t outer, int64_t inner) {
    for (int64_t a = 0; a < n; ++a) {
      float sum = 0.0f;
      for (int64_t b = 0; b < n; ++b) sum += c[a * outer + b * inner];
      for (int64_t b = 0; b < n; ++b) c[a * outer + b * inner] /= sum + eps;
    }
  };
  normalise(1, n);
  for (int i = 1; i < iters; ++i) {
    normalise(n, 1);
    normalise(1, n);
  }
}

// comb [streams, streams] of rows that lie `stride` floats apart. Four streams, as published, fill a Vec: a row of comb
// is a run of four lanes. Two batch rows go hand in hand, since each step waits for a division.
void Sinkhorn(float* comb, int64_t rows, int64_t stride, int64_t streams, float eps, int iters) {
  if (streams != 4) {
    for (int64_t r = 0; r < rows; ++r) SinkhornLoops(comb + r * stride, streams, eps, iters);
    return;
  }
  const Vec e = Set(eps);
  for (int64_t r = 0; r < rows; r += 2) {
    const int n = rows - r < 2 ? 1 : 2;
    Vec c[2];
    for (int i = 0; i < 2; ++i) {
      c[i] = Load(comb + (i < n ? r + i : r) * stride);
      c[i] = Exp(c[i] - MaxOfRuns(c[i]));
      c[i] = c[i] / SumOfRuns(c[i]) + e;
      c[i] = c[i] / (SumAcrossRuns(c[i]) + e);
    }
    for (int t = 1; t < iters; ++t) {
      for (int i = 0; i < 2; ++i) c[i] = c[i] / (SumOfRuns(c[i]) + e);
      for (int i = 0; i < 2; ++i) c[i] = c[i] / (SumAcrossRuns(c[i]) + e);
    }
    for (int i = 0; i < n; ++i) Store(comb + (r + i) * stride, c[i]);
  }
}

}  // namespace
}  // namespace deepinfer::backend::cpu
