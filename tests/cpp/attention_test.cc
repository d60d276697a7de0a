// Every attention row against the double reference: values, log-sums and gradients (complex step) on tile edges.
#include <complex>

#include "compare.h"
#include "head_node.h"
#include "mudd/base/parallel.h"
#include "mudd/kernels/convert/convert.h"
#include "mudd/ops/attention/attention.h"
#include "mudd/ops/attention/reference.h"

using namespace mudd;
using namespace mudd::test;
using C = std::complex<double>;
using reference::AttentionCase;

namespace {

constexpr Scores kScores[] = {Scores::softmax, Scores::sqrelu, Scores::elu, Scores::norm_sqrelu, Scores::norm_elu};

struct Numbers {
  std::vector<float> q, k, v, dout;
};

Numbers numbers_of(const AttentionCase& c) {
  const int64_t wide = c.batch * c.time * c.heads * c.dim, narrow = c.batch * c.time * c.kv_heads * c.dim;
  Numbers n{numbers(1, wide), numbers(2, narrow), numbers(3, narrow), numbers(4, wide)};
  for (float& x : n.q) x *= 3.0f;  // so that probabilities are far from equal
  return n;
}

struct Wanted {
  std::vector<double> o, lse, dq, dk, dv;
};

// Analytic gradients in double from the reference's own probabilities; checked by the complex step below.
Wanted wanted(const AttentionCase& c, const Numbers& n) {
  const auto q = widen(n.q), k = widen(n.k), v = widen(n.v);
  Wanted w;
  w.o.resize(q.size()), w.lse.resize(static_cast<size_t>(c.batch * c.heads * c.time));
  w.dq.resize(q.size()), w.dk.resize(k.size()), w.dv.resize(k.size());
  reference::attention<double>(c, q.data(), k.data(), v.data(), w.o.data(), w.lse.data());
  for (int64_t b = 0; b < c.batch; ++b)
    for (int64_t h = 0; h < c.heads; ++h)
      for (int64_t t = 0; t < c.time; ++t) {
        const int64_t row = ((b * c.time + t) * c.heads + h) * c.dim;
        const double lse = w.lse[(b * c.heads + h) * c.time + t];
        double delta = 0;
        for (int64_t d = 0; d < c.dim; ++d) delta += n.dout[row + d] * w.o[row + d];
        for (int64_t key = 0; key < c.time; ++key) {
          if (!c.visible(b, t, key)) continue;
          const int64_t at = ((b * c.time + key) * c.kv_heads + h / (c.heads / c.kv_heads)) * c.dim;
          double score = 0, dp = 0;
          for (int64_t d = 0; d < c.dim; ++d) score += q[row + d] * k[at + d], dp += n.dout[row + d] * v[at + d];
          const double factor = c.factor(b, h, t, key);
          dp *= factor;
          double p = std::exp(score * c.scale - lse), ds = p * (dp - delta) * c.scale;
          if (c.activation != Scores::softmax) {  // then lse is the factor
            p = reference::score_value(c.activation, score * c.scale) * lse;
            const double rest = dp - (has_row_sum(c.activation) ? delta : 0);
            ds = reference::score_slope(c.activation, score * c.scale) * lse * rest * c.scale;
          }
          for (int64_t d = 0; d < c.dim; ++d) {
            w.dq[row + d] += ds * k[at + d];
            w.dk[at + d] += ds * q[row + d];
            w.dv[at + d] += factor * p * n.dout[row + d];
          }
        }
      }
  return w;
}

// Growth over the table's bound: scores are sums of hd terms scaled to about 10, the rest sums of up to T terms.
double growth(const AttentionCase& c) { return 1 + (std::sqrt(double(c.dim)) + std::sqrt(double(c.time))) / 16; }

// As distance(), but with one key the exact gradients of q and k are zero: then differences count against 1/4, the
// size of the terms that cancel.
double error(const std::vector<float>& got, const std::vector<double>& want) {
  double scale = 0;
  for (const double w : want) scale = std::max(scale, std::fabs(w));
  return distance(got, want, want.size()) * std::min(1.0, std::max(scale, 1e-30) / 0.25);
}

enum class Kind { f32, bf16, pairs };  // inputs fp32; inputs bf16; inputs bf16 for a row that also rounds P and dS

// The numbers in bf16; `x` becomes what they hold.
std::vector<bf16> narrowed(std::vector<float>& x) {
  std::vector<bf16> all(x.size());
  mudd::narrow(static_cast<int64_t>(x.size()), x.data(), all.data());
  mudd::widen(static_cast<int64_t>(x.size()), all.data(), x.data());
  return all;
}

// One slice at a time, straight on the kernels of one row. Scratch is poisoned.
void check_row(const AttentionKernels& kernels, const AttentionCase& c, bool small_parts, Kind kind = Kind::f32) {
  Numbers n = numbers_of(c);
  std::vector<bf16> halves[4];
  ConstCells from[4] = {n.q.data(), n.k.data(), n.v.data(), n.dout.data()};
  if (kind != Kind::f32)
    for (int i = 0; auto* x : {&n.q, &n.k, &n.v, &n.dout})
      halves[i] = narrowed(*x), from[i] = halves[i].data(), ++i;
  const Wanted want = wanted(c, n);
  const int64_t group = c.heads / c.kv_heads, wide = c.heads * c.dim, narrow = c.kv_heads * c.dim;
  std::vector<float> o(n.q.size(), kPoison), lse(want.lse.size(), kPoison), delta(want.lse.size(), kPoison);
  std::vector<float> dq(n.q.size(), kPoison), dk(n.k.size(), kPoison), dv(n.k.size(), kPoison);
  const int64_t floats = std::max(kernels.fwd_scratch(c.dim), kernels.bwd_scratch(c.dim));
  std::vector<float> scratch(static_cast<size_t>(floats), kPoison);
  for (int64_t b = 0; b < c.batch; ++b)
    for (int64_t g = 0; g < c.kv_heads; ++g) {
      const int64_t q_at = b * c.time * wide + g * group * c.dim, k_at = b * c.time * narrow + g * c.dim;
      const int64_t row_at = (b * c.heads + g * group) * c.time;
      AttentionSlice s;
      s.group = group, s.dim = c.dim, s.queries = s.keys = c.time;
      s.causal = c.causal, s.window = c.window, s.scale = static_cast<float>(c.scale);
      s.activation = c.activation, s.divisor = static_cast<float>(c.divisor), s.eps = static_cast<float>(c.eps);
      s.q = from[0] + q_at, s.k = from[1] + k_at, s.v = from[2] + k_at, s.o = o.data() + q_at;
      s.q_row = s.o_row = wide, s.q_head = s.o_head = c.dim, s.k_row = s.v_row = narrow;
      s.lse = lse.data() + row_at;
      s.drop = c.drop, s.drop.sample += static_cast<uint32_t>(b), s.first_head = g * group;
      if (c.segments) s.segments = c.segments + b * c.time;
      if (c.key_mask) s.key_mask = c.key_mask + b * c.time;
      const int64_t together = std::min(group, std::max<int64_t>(1, kernels.query_tile / c.time));
      for (int64_t h = 0; h < group; h += together)
        for (int64_t t = 0; t < c.time; t += kernels.query_tile)
          kernels.fwd(s, {h, std::min(h + together, group), t, std::min(t + kernels.query_tile, c.time)},
                      scratch.data());
      AttentionGrad grad;
      grad.dout = from[3] + q_at, grad.do_row = grad.dq_row = wide, grad.do_head = grad.dq_head = c.dim;
      grad.dk_row = grad.dv_row = narrow;
      kernels.delta(s, grad, 0, c.time, delta.data() + row_at);
      grad.delta = delta.data() + row_at;
      grad.dq = dq.data() + q_at, grad.dk = dk.data() + k_at, grad.dv = dv.data() + k_at;
      const int64_t part = small_parts ? kernels.query_tile : std::max<int64_t>(c.time, 1);
      const int64_t parts = (c.time + part - 1) / part;
      for (int64_t wave = 0; wave < parts; ++wave)
        for (int64_t keys = 0; keys < parts; ++keys) {
          const int64_t queries = (keys + wave) % parts;
          if (c.causal && queries < keys) continue;
          grad.key_begin = keys * part, grad.key_end = std::min(grad.key_begin + part, c.time);
          grad.query_begin = queries * part, grad.query_end = std::min(grad.query_begin + part, c.time);
          grad.set_dq = grad.set_dk = grad.set_dv = wave == 0;
          kernels.bwd(s, grad, scratch.data());
        }
    }
  const double allowed =
      kind == Kind::pairs ? tolerance("attention.bf16") : tolerance("attention.sums") * growth(c);
  CHECK(error(o, want.o) <= allowed);
  CHECK(error(dq, want.dq) <= allowed);
  CHECK(error(dk, want.dk) <= allowed);
  CHECK(error(dv, want.dv) <= allowed);
  if (c.activation != Scores::softmax)
    CHECK(distance(lse, want.lse, lse.size()) <= tolerance("attention.sums") * growth(c));
  else
    for (size_t i = 0; i < lse.size(); ++i)
      if (std::isfinite(want.lse[i])) CHECK(std::fabs(lse[i] * std::log(2.0) - want.lse[i]) <= 1e-5);
      else CHECK(lse[i] > 1e29f);
}

AttentionCase small(int64_t time, int64_t heads, int64_t kv_heads, int64_t dim) {
  AttentionCase c;
  c.time = time, c.heads = heads, c.kv_heads = kv_heads, c.dim = dim;
  c.scale = 1.0 / std::sqrt(double(dim));
  return c;
}

}  // namespace

TEST_CASE("the analytic gradients of this test equal the complex step on the reference") {
  AttentionCase c = small(5, 4, 2, 3);
  const std::vector<int32_t> segments = {1, 1, 2, 2, 0}, mask = {1, 0, 1, 1, 1};
  for (const Scores a : kScores) {
    const bool windowed = a == Scores::elu;
    c.segments = windowed ? nullptr : segments.data(), c.key_mask = windowed ? nullptr : mask.data();
    c.window = windowed ? 2 : kNoWindow;
    c.activation = a, c.divisor = 7, c.eps = 0.25;
    if (a == kScores[0]) c.drop = Dropout(0.4, 9, "place", 3, 5);
    const Numbers n = numbers_of(c);
    const Wanted want = wanted(c, n);
    const double h = 1e-30;
    std::vector<C> q(n.q.begin(), n.q.end()), k(n.k.begin(), n.k.end()), v(n.v.begin(), n.v.end()), o(n.q.size());
    for (auto [moved, gradient] : {std::pair{&q, &want.dq}, std::pair{&k, &want.dk}, std::pair{&v, &want.dv}})
      for (size_t i = 0; i < moved->size(); ++i) {
        (*moved)[i] += C(0, h);
        reference::attention<C>(c, q.data(), k.data(), v.data(), o.data(), nullptr);
        (*moved)[i] -= C(0, h);
        double slope = 0;
        for (size_t j = 0; j < o.size(); ++j) slope += n.dout[j] * o[j].imag() / h;
        CHECK(slope == doctest::Approx((*gradient)[i]).epsilon(1e-9));
      }
  }
}

TEST_CASE("the activations beside softmax equal the reference on the edges of tiles, lanes and masks") {
  for_each_row(attention_rows(), [](const auto& row) {
    const int64_t tile = row.kernels->query_tile;
    for (const Scores a : kScores)
      for (const int64_t time : {int64_t{1}, int64_t{17}, tile + 1, 2 * tile + 3})
        for (const bool causal : {true, false}) {
          AttentionCase c = small(time, 4, 2, 12);
          c.activation = a, c.divisor = 20, c.eps = 1e-2, c.causal = causal;
          check_row(*row.kernels, c, time > tile);
          std::vector<int32_t> segments, mask;
          for (int64_t i = 0; i < time; ++i) {
            segments.push_back(static_cast<int32_t>(i / 23));
            mask.push_back(number(9, static_cast<uint64_t>(i)) > -0.3f);
          }
          c.segments = segments.data(), c.key_mask = mask.data();
          check_row(*row.kernels, c, true);
        }
  });
}

TEST_CASE("attention rows equal the reference on the edges of tiles and lanes") {
  for_each_row(attention_rows(), [](const auto& row) {
    const int64_t tile = row.kernels->query_tile;
    for (int64_t time : {int64_t{1}, int64_t{2}, int64_t{17}, tile - 1, tile, tile + 1, 2 * tile + 1})
      for (int64_t dim : {4, 16, 24}) check_row(*row.kernels, small(time, 2, 1, dim), true);
    for (int64_t dim : {1, 8, 12, 17, 33, 64, 80}) check_row(*row.kernels, small(19, 3, 3, dim), false);
    for (const bool small_parts : {true, false})
      check_row(*row.kernels, small(4 * tile + 7, 1, 1, 16), small_parts);
  });
}

TEST_CASE("attention rows with dropout: forward and backward draw alike, whatever the tiles and the type") {
  for (const DType compute : {DType::f32, DType::bf16})
    for_each_row(attention_rows(compute), [&](const auto& row) {
      const bool pairs = std::string(row.name) == "attention_bf16";
      const Kind kind = pairs ? Kind::pairs : compute == DType::bf16 ? Kind::bf16 : Kind::f32;
      for (const int64_t time : {int64_t{1}, int64_t{17}, int64_t{97}, row.kernels->query_tile + 5})
        for (const bool causal : {true, false})
          for (const double rate : {0.1, 0.5}) {
            AttentionCase c = small(time, 4, 2, 12);
            c.batch = 2, c.causal = causal, c.drop = Dropout(rate, uint64_t{1} << 40 | 9, "place", 3, 5);
            check_row(*row.kernels, c, time > 97, kind);
          }
    });
}

TEST_CASE("attention rows: segments, hidden keys, empty rows, no causality") {
  for_each_row(attention_rows(), [](const auto& row) {
    for (int64_t time : {5, 70, 131}) {
      std::vector<int32_t> segments, mask, none(static_cast<size_t>(2 * time), 0);
      for (int64_t i = 0; i < 2 * time; ++i) {
        segments.push_back(static_cast<int32_t>(i % time / 23 * 7 + (1 << 28)));  // too large for exact floats
        mask.push_back(number(9, static_cast<uint64_t>(i)) > -0.3f);
      }
      for (const bool causal : {true, false}) {
        AttentionCase c = small(time, 4, 2, 8);
        c.batch = 2, c.causal = causal;
        check_row(*row.kernels, c, true);
        c.segments = segments.data();
        check_row(*row.kernels, c, true);
        c.key_mask = mask.data();
        check_row(*row.kernels, c, true);
        c.key_mask = none.data();  // every row is empty: all zeros
        check_row(*row.kernels, c, false);
      }
    }
  });
}

TEST_CASE("attention rows with a window equal the reference, whichever tiles it leaves out") {
  for (const DType compute : {DType::f32, DType::bf16})
    for_each_row(attention_rows(compute), [&](const auto& row) {
      const bool pairs = std::string(row.name) == "attention_bf16";
      const Kind kind = pairs ? Kind::pairs : compute == DType::bf16 ? Kind::bf16 : Kind::f32;
      const int64_t tile = row.kernels->query_tile;
      for (const int64_t time : {int64_t{1}, int64_t{17}, int64_t{193}, 2 * tile + 7})
        for (const int64_t window : {1, 2, 63, 64, 65, 96, 97, 130, 600}) {
          AttentionCase c = small(time, 4, 2, 12);
          c.window = window;
          check_row(*row.kernels, c, window % 2 == 0, kind);
          if (time > tile) continue;
          std::vector<int32_t> segments, mask;
          for (int64_t i = 0; i < time; ++i) {
            segments.push_back(static_cast<int32_t>(i / 71));
            mask.push_back(number(9, static_cast<uint64_t>(i)) > -0.3f);
          }
          c.segments = segments.data(), c.key_mask = mask.data();
          c.activation = Scores::norm_sqrelu, c.eps = 1e-2;
          check_row(*row.kernels, c, true, kind);
        }
    });
}

TEST_CASE("bf16 inputs: rows that widen them, and rows that multiply pairs") {
  for_each_row(attention_rows(DType::bf16), [](const auto& row) {
    const Kind kind = std::string(row.name) == "attention_bf16" ? Kind::pairs : Kind::bf16;
    for (int64_t time : {1, 2, 17, 63, 65, 97, 131})
      for (int64_t dim : {4, 17, 24}) check_row(*row.kernels, small(time, 2, 1, dim), true, kind);
    for (int64_t dim : {1, 8, 33, 64, 80}) check_row(*row.kernels, small(19, 3, 3, dim), false, kind);
    for (const bool small_parts : {true, false}) check_row(*row.kernels, small(401, 1, 1, 16), small_parts, kind);
    for (const Scores a : kScores)
      for (const bool causal : {true, false}) {
        AttentionCase c = small(143, 4, 2, 12);
        c.activation = a, c.divisor = 20, c.eps = 1e-2, c.causal = causal;
        check_row(*row.kernels, c, true, kind);
        std::vector<int32_t> segments, mask;
        for (int64_t i = 0; i < c.time; ++i) {
          segments.push_back(static_cast<int32_t>(i / 23));
          mask.push_back(number(9, static_cast<uint64_t>(i)) > -0.3f);
        }
        c.segments = segments.data(), c.key_mask = mask.data();
        check_row(*row.kernels, c, true, kind);
      }
  });
}
