// levels: gemm rows on every edge of their tiles. Products are compared bit for bit with the chain that the
// contract promises, so equality across levels, tiles, blocks and threads follows; sums over shards likewise.
#include <algorithm>
#include <cstring>
#include <string>

#include "compare.h"
#include "mudd/base/parallel.h"
#include "mudd/graph/node.h"
#include "mudd/ops/activation/reference.h"
#include "mudd/ops/gemm/gemm.h"
#include "mudd/ops/gemm/reference.h"

using namespace mudd;
using namespace mudd::test;
using Floats = std::vector<float>;

namespace {

float step(bool fused, float a, float b, float c) { return fused ? std::fma(a, b, c) : a * b + c; }

// c = a b as one chain per element from `start` (contiguous operands).
Floats chain(bool fused, int64_t m, int64_t n, int64_t k, const Floats& a, const Floats& b, Floats start) {
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j)
      for (int64_t l = 0; l < k; ++l) start[i * n + j] = step(fused, a[i * k + l], b[l * n + j], start[i * n + j]);
  return start;
}

Floats transpose(const Floats& x, int64_t rows, int64_t cols) {
  Floats t(x.size());
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < cols; ++j) t[j * rows + i] = x[i * cols + j];
  return t;
}

// Rows `stride` apart, the gaps filled with nan so that reading them shows.
Floats spread(const Floats& x, int64_t rows, int64_t cols, int64_t stride) {
  Floats s(static_cast<size_t>(rows * stride), std::numeric_limits<float>::quiet_NaN());
  for (int64_t i = 0; i < rows; ++i) std::copy_n(x.begin() + i * cols, cols, s.begin() + i * stride);
  return s;
}

Floats gather(const Floats& s, int64_t rows, int64_t cols, int64_t stride) {
  Floats x;
  for (int64_t i = 0; i < rows; ++i) x.insert(x.end(), s.begin() + i * stride, s.begin() + i * stride + cols);
  return x;
}

bool same(const Floats& a, const Floats& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

std::vector<int64_t> edges(int64_t t) { return {1, t - 1, t, t + 1, 2 * t + 1}; }

Floats packed(const GemmKernels& kernels, const Floats& b, int64_t k, int64_t n, bool transposed) {
  const int64_t panels = (n + kernels.nr - 1) / kernels.nr;
  Floats p(static_cast<size_t>(panels * kernels.nr * k), std::numeric_limits<float>::quiet_NaN());
  const int64_t middle = panels / 2;  // in two calls: a range must not touch its neighbours
  for (int part = 0; part < 2; ++part)
    (transposed ? kernels.pack_transposed : kernels.pack)(b.data(), transposed ? k : n, k, n, part ? middle : 0,
                                                          part ? panels : middle, p.data());
  return p;
}

void check_product(const GemmKernels& kernels, bool fused, int64_t m, int64_t n, int64_t k, bool transposed,
                   bool accumulate) {
  CAPTURE(m);
  CAPTURE(n);
  CAPTURE(k);
  const Floats a = numbers(1, m * k), b = numbers(2, k * n);
  const Floats start = accumulate ? numbers(3, m * n) : Floats(static_cast<size_t>(m * n));
  const int64_t lda = k + 3, ldc = n + 5;
  const Floats wide_a = spread(a, m, k, lda);
  const Floats pack = packed(kernels, transposed ? transpose(b, k, n) : b, k, n, transposed);
  Floats c = spread(start, m, n, ldc), untouched = c;
  GemmBlock g;
  g.a = wide_a.data();
  g.lda = lda;
  g.b = pack.data();
  g.c = c.data();
  g.ldc = ldc;
  g.m = m;
  g.n = n;
  g.k = k;
  g.accumulate = accumulate;
  kernels.multiply(g);
  CHECK(same(gather(c, m, n, ldc), chain(fused, m, n, k, a, b, start)));
  for (int64_t i = 0; i < m; ++i)
    CHECK(std::memcmp(&c[i * ldc + n], &untouched[i * ldc + n], 5 * sizeof(float)) == 0);
}

// The sums that the contract promises: a chain per shard, a balanced tree, then the adds.
Floats gradient_chain(bool fused, const std::vector<int64_t>& cuts, int64_t m, int64_t n, const Floats& x,
                      const Floats& dy, const std::vector<Floats>& adds) {
  std::vector<Floats> parts;
  for (size_t s = 0; s + 1 < cuts.size(); ++s) {
    Floats sum(static_cast<size_t>(m * n));
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j)
        for (int64_t r = cuts[s]; r < cuts[s + 1]; ++r)
          sum[i * n + j] = step(fused, x[r * m + i], dy[r * n + j], sum[i * n + j]);
    parts.push_back(sum);
  }
  for (size_t distance = 1; distance < parts.size(); distance *= 2)
    for (size_t s = 0; s + distance < parts.size(); s += 2 * distance)
      for (size_t i = 0; i < parts[s].size(); ++i) parts[s][i] += parts[s + distance][i];
  for (const Floats& add : adds)
    for (size_t i = 0; i < add.size(); ++i) parts[0][i] = add[i] + parts[0][i];
  return parts[0];
}

void check_gradient(const GemmKernels& kernels, bool fused, const std::vector<int64_t>& cuts, int64_t m, int64_t n,
                    int n_add) {
  CAPTURE(m);
  CAPTURE(n);
  CAPTURE(cuts.size());
  const int64_t rows = cuts.back(), ldx = m + 3, ldy = n + 1, ldo = n + 2;
  const Floats x = numbers(4, rows * m), dy = numbers(5, rows * n);
  const Floats wide_x = spread(x, rows, m, ldx), wide_dy = spread(dy, rows, n, ldy);
  std::vector<Floats> adds, wide_adds;
  std::vector<const float*> add;
  for (int i = 0; i < n_add; ++i) {
    adds.push_back(numbers(6 + i, m * n));
    wide_adds.push_back(spread(adds.back(), m, n, ldo));
  }
  for (const Floats& w : wide_adds) add.push_back(w.data());
  Floats out(static_cast<size_t>(m * ldo), 7.0f);
  Floats scratch(static_cast<size_t>(kernels.grad_scratch(m, n, static_cast<int>(cuts.size()) - 1)),
                 std::numeric_limits<float>::quiet_NaN());
  GradBlock g;
  g.x = wide_x.data();
  g.ldx = ldx;
  g.dy = wide_dy.data();
  g.ldy = ldy;
  g.cuts = cuts.data();
  g.shards = static_cast<int>(cuts.size()) - 1;
  g.m = m;
  g.n = n;
  g.out = out.data();
  g.ldo = ldo;
  g.add = add.data();
  g.n_add = n_add;
  g.scratch = scratch.data();
  kernels.weight_gradient(g);
  const Floats want = gradient_chain(fused, cuts, m, n, x, dy, adds);
  CHECK(same(gather(out, m, n, ldo), want));
  if (n_add > 0) {  // the last add may be the place of the result
    g.out = wide_adds.back().data();
    kernels.weight_gradient(g);
    CHECK(same(gather(wide_adds.back(), m, n, ldo), want));
  }
  for (int64_t i = 0; i < m; ++i) CHECK(out[i * ldo + n] == 7.0f);
}

bool is_fused(const std::string& level) { return level != "portable"; }

constexpr Activation kActivations[] = {Activation::none,     Activation::silu, Activation::gelu_tanh,
                                       Activation::gelu_erf, Activation::relu, Activation::squared_relu};

}  // namespace

TEST_CASE("products are the promised chain on every edge of the tile") {
  for_each_row(gemm_rows(), [](const auto& row) {
    const GemmKernels& kernels = *row.kernels;
    const bool fused = is_fused(row.level);
    for (int64_t m : edges(kernels.mr))
      for (int64_t n : edges(kernels.nr))
        for (int64_t k : {0, 1, 3, 4, 5, 17})
          for (int form = 0; form < 4; ++form) check_product(kernels, fused, m, n, k, form & 1, form & 2);
    check_product(kernels, fused, 0, kernels.nr, 3, false, false);
    check_product(kernels, fused, 3, 0, 3, false, false);
  });
}

TEST_CASE("cache blocks do not change the chain") {
  for_each_row(gemm_rows(), [](const auto& row) {
    const bool fused = is_fused(row.level);
    for (int64_t k : {255, 256, 257, 513})
      for (bool accumulate : {false, true}) check_product(*row.kernels, fused, 13, 33, k, false, accumulate);
    check_product(*row.kernels, fused, 97, 257, 8, false, false);
    check_product(*row.kernels, fused, 1, 5 * row.kernels->nr + 3, 300, true, true);
  });
}

TEST_CASE("a row does not depend on its neighbours") {
  for_each_row(gemm_rows(), [](const auto& row) {
    const int64_t m = 2 * row.kernels->mr + 1, n = 2 * row.kernels->nr + 5, k = 301;
    const Floats a = numbers(1, m * k), b = numbers(2, k * n), pack = packed(*row.kernels, b, k, n, false);
    Floats together(static_cast<size_t>(m * n)), alone = together;
    GemmBlock g{.a = a.data(),
                .lda = k,
                .b = pack.data(),
                .c = together.data(),
                .ldc = n,
                .m = m,
                .n = n,
                .k = k,
                .epilogue = {}};
    row.kernels->multiply(g);
    for (int64_t i = 0; i < m; ++i) {
      g.a = a.data() + i * k;
      g.c = alone.data() + i * n;
      g.m = 1;
      row.kernels->multiply(g);
    }
    CHECK(same(together, alone));
  });
}

TEST_CASE("epilogues: bias, activation, pre-activation, residual in place") {
  for_each_row(gemm_rows(), [](const auto& row) {
    const GemmKernels& kernels = *row.kernels;
    for (Activation activation : kActivations)
      for (int64_t m : edges(kernels.mr))
        for (int64_t n : edges(kernels.nr))
          for (int64_t k : {2, 260}) {
            CAPTURE(m);
            CAPTURE(n);
            const Floats a = numbers(1, m * k), b = numbers(2, k * n), bias = numbers(3, n);
            const Floats residual = numbers(4, m * n), pack = packed(kernels, b, k, n, false);
            Floats c = residual, pre(c.size());
            GemmBlock g{.a = a.data(),
                        .lda = k,
                        .b = pack.data(),
                        .c = c.data(),
                        .ldc = n,
                        .m = m,
                        .n = n,
                        .k = k,
                        .epilogue = {bias.data(), activation, pre.data(), n, c.data(), n}};
            kernels.multiply(g);
            std::vector<double> want(c.size()), want_pre(c.size());
            const auto ad = widen(a), bd = widen(b);
            reference::gemm<double>(m, n, k, ad.data(), bd.data(), false, want_pre.data());
            for (size_t i = 0; i < c.size(); ++i) {
              want_pre[i] += bias[i % n];
              want[i] = reference::activate(activation, want_pre[i]) + residual[i];
            }
            CHECK(distance(pre, want_pre, pre.size()) <= tolerance(16));
            CHECK(distance(c, want, c.size()) <= tolerance(32));
          }
  });
}

TEST_CASE("weight gradients are the promised tree on every edge") {
  for_each_row(gemm_rows(), [](const auto& row) {
    const GemmKernels& kernels = *row.kernels;
    const bool fused = is_fused(row.level);
    for (int64_t m : edges(kernels.mr))
      for (int64_t n : edges(kernels.nr)) {
        check_gradient(kernels, fused, {0, 5}, m, n, 0);
        check_gradient(kernels, fused, {0, 3, 3, 7, 8}, m, n, 1);
      }
    check_gradient(kernels, fused, {0, 0}, 3, 4, 1);
    check_gradient(kernels, fused, {0, 300, 557}, 7, 33, 2);
    check_gradient(kernels, fused, {0, 2, 3, 5, 6, 8, 9}, 49, 129, 3);
    check_gradient(kernels, fused, {0, 2, 3, 5, 6, 8, 9, 11, 12}, 50, 20, 3);
  });
}

TEST_CASE("micro-batches of whole shards give the same bits as one run") {
  for_each_row(gemm_rows(), [](const auto& row) {
    const GemmKernels& kernels = *row.kernels;
    const int64_t m = kernels.mr + 1, n = kernels.nr + 1, cuts[] = {0, 9, 17, 24, 31};
    const Floats x = numbers(1, 31 * m), dy = numbers(2, 31 * n);
    Floats scratch(static_cast<size_t>(kernels.grad_scratch(m, n, 4)));
    Floats whole(static_cast<size_t>(m * n)), half = whole, both = whole;
    GradBlock g{.x = x.data(),
                .ldx = m,
                .dy = dy.data(),
                .ldy = n,
                .cuts = cuts,
                .shards = 4,
                .m = m,
                .n = n,
                .out = whole.data(),
                .ldo = n,
                .scratch = scratch.data()};
    kernels.weight_gradient(g);
    g.shards = 2;
    g.out = half.data();
    kernels.weight_gradient(g);
    const int64_t second[] = {0, 7, 14};
    const float* add[] = {half.data()};
    g.x += 17 * m;
    g.dy += 17 * n;
    g.cuts = second;
    g.out = both.data();
    g.add = add;
    g.n_add = 1;
    kernels.weight_gradient(g);
    CHECK(same(whole, both));
  });
}

TEST_CASE("threads and drivers give the bits of one block") {
  const GemmKernels& kernels = gemm_kernels();
  const bool fused = active_isa() != Isa::portable;
  const int64_t m = 101, n = 531, k = 67;
  const Floats a = numbers(1, m * k), b = numbers(2, k * n), dy = numbers(3, m * n);
  const Floats product = chain(fused, m, n, k, a, b, Floats(static_cast<size_t>(m * n)));
  const std::vector<int64_t> cuts = {0, 50, 101};
  const Floats gradient = gradient_chain(fused, cuts, k, n, a, dy, {});
  for (int threads : {1, 2, 3}) {
    set_num_threads(threads);
    for (bool transposed : {false, true}) {
      Floats pack(static_cast<size_t>(packed_size(k, n))), c(static_cast<size_t>(m * n));
      const Floats stored = transposed ? transpose(b, k, n) : b;
      pack_weight(stored.data(), transposed ? n : k, transposed ? k : n, transposed, pack.data());
      CHECK(same(pack, packed(kernels, stored, k, n, transposed)));
      multiply({.a = a.data(),
                .lda = k,
                .b = pack.data(),
                .c = c.data(),
                .ldc = n,
                .m = m,
                .n = n,
                .k = k,
                .epilogue = {}});
      CHECK(same(c, product));
      Floats first(static_cast<size_t>(n));
      multiply({.a = a.data(),
                .lda = k,
                .b = pack.data(),
                .c = first.data(),
                .ldc = n,
                .m = 1,
                .n = n,
                .k = k,
                .epilogue = {}});
      CHECK(same(first, Floats(product.begin(), product.begin() + n)));
    }
    Floats dw(static_cast<size_t>(k * n));
    Floats scratch(static_cast<size_t>(grad_scratch_bytes(k, n, 2)) / sizeof(float));
    weight_gradient({.x = a.data(),
                     .ldx = k,
                     .dy = dy.data(),
                     .ldy = n,
                     .cuts = cuts.data(),
                     .shards = 2,
                     .m = k,
                     .n = n,
                     .out = dw.data(),
                     .ldo = n,
                     .scratch = scratch.data(),
                     .scratch_bytes = static_cast<int64_t>(scratch.size() * sizeof(float))});
    CHECK(same(dw, gradient));
  }
  set_num_threads(0);
}
