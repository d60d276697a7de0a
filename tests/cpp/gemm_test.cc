// levels: GEMMs for all tile remainders, bit for bit the chain of the contract; so equality across levels,
// tiles, blocks and threads follows. The threaded drivers against one block.
#include <cmath>
#include <cstring>

#include "compare.h"
#include "gemm_chain.h"
#include "gemm_operands.h"
#include "mudd/base/parallel.h"
#include "mudd/kernels/gemm/gemm.h"
#include "mudd/kernels/gemm/reference.h"
#include "mudd/ops/activation/reference.h"

using namespace mudd;
using namespace mudd::test;

namespace {

void check_product(const GemmKernels& kernels, int64_t m, int64_t n, int64_t k, bool transposed, bool accumulate) {
  CAPTURE(m);
  CAPTURE(n);
  CAPTURE(k);
  const Floats a = numbers(1, m * k), b = numbers(2, k * n);
  const Floats start = accumulate ? numbers(3, m * n) : Floats(static_cast<size_t>(m * n));
  const int64_t lda = k + 3, ldc = n + 5;
  const Floats wide_a = spread(a, m, k, lda);
  const Packed pack(kernels, b, k, n, transposed);
  Floats c = spread(start, m, n, ldc), untouched = c;
  GemmBlock g = product_of(wide_a.data(), pack.bytes.data(), c.data(), m, n, k);
  g.lda = lda;
  g.ldc = ldc;
  g.accumulate = accumulate;
  kernels.multiply(g);
  CHECK(same_bits(gather(c, m, n, ldc), chain(m, n, k, a, b, start)));
  for (int64_t i = 0; i < m; ++i)
    CHECK(std::memcmp(&c[i * ldc + n], &untouched[i * ldc + n], 5 * sizeof(float)) == 0);
}

constexpr Activation kActivations[] = {Activation::none,     Activation::silu, Activation::gelu_tanh,
                                       Activation::gelu_erf, Activation::relu, Activation::squared_relu};

}  // namespace

TEST_CASE("products are the promised chain on every edge of the tile") {
  for_each_row(gemm_rows(), [](const auto& row) {
    const GemmKernels& kernels = *row.kernels;
    for (int64_t m : edges(kernels.mr))
      for (int64_t n : edges(kernels.nr))
        for (int64_t k : {0, 1, 3, 4, 5, 17})
          for (int form = 0; form < 4; ++form) check_product(kernels, m, n, k, form & 1, form & 2);
    check_product(kernels, 0, kernels.nr, 3, false, false);
    check_product(kernels, 3, 0, 3, false, false);
  });
}

TEST_CASE("cache blocks do not change the chain") {
  for_each_row(gemm_rows(), [](const auto& row) {
    for (int64_t k : {255, 256, 257, 513})
      for (bool accumulate : {false, true}) check_product(*row.kernels, 13, 33, k, false, accumulate);
    check_product(*row.kernels, 97, 257, 8, false, false);
    check_product(*row.kernels, 1, 5 * row.kernels->nr + 3, 300, true, true);
  });
}

TEST_CASE("a row does not depend on its neighbours") {
  for_each_row(gemm_rows(), [](const auto& row) {
    const int64_t m = 2 * row.kernels->mr + 1, n = 2 * row.kernels->nr + 5, k = 301;
    const Floats a = numbers(1, m * k), b = numbers(2, k * n);
    const Packed pack(*row.kernels, b, k, n, false);
    Floats together(static_cast<size_t>(m * n)), alone = together;
    GemmBlock g = product_of(a.data(), pack.bytes.data(), together.data(), m, n, k);
    row.kernels->multiply(g);
    for (int64_t i = 0; i < m; ++i) {
      g.a = a.data() + i * k;
      g.c = alone.data() + i * n;
      g.m = 1;
      row.kernels->multiply(g);
    }
    CHECK(same_bits(together, alone));
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
            const Floats residual = numbers(4, m * n);
            const Packed pack(kernels, b, k, n, false);
            Floats c = residual, pre(c.size());
            GemmBlock g = product_of(a.data(), pack.bytes.data(), c.data(), m, n, k);
            g.epilogue = {bias.data(), activation, pre.data(), n, c.data(), n};
            kernels.multiply(g);
            std::vector<double> want(c.size()), want_pre(c.size());
            const auto ad = widen(a), bd = widen(b);
            reference::gemm<double>(m, n, k, ad.data(), bd.data(), false, want_pre.data());
            for (size_t i = 0; i < c.size(); ++i) {
              want_pre[i] += bias[i % n];
              want[i] = reference::activate(activation, want_pre[i]) + residual[i];
            }
            CHECK(distance(pre, want_pre, pre.size()) <= tolerance("gemm.sum"));
            CHECK(distance(c, want, c.size()) <= tolerance("gemm.c"));
          }
  });
}

TEST_CASE("threads and drivers give the bits of one block") {
  const GemmKernels& kernels = gemm_kernels();
  const int64_t m = 101, n = 531, k = 67;
  const Floats a = numbers(1, m * k), b = numbers(2, k * n), dy = numbers(3, m * n);
  const Floats product = chain(m, n, k, a, b, Floats(static_cast<size_t>(m * n)));
  const std::vector<int64_t> cuts = {0, 50, 101};
  const Floats gradient = gradient_chain(cuts, k, n, a, dy, {});
  for (int threads : {1, 2, 3}) {
    set_num_threads(threads);
    for (bool transposed : {false, true}) {
      std::vector<char> pack(static_cast<size_t>(packed_bytes(k, n)));
      Floats c(static_cast<size_t>(m * n));
      const Floats stored = transposed ? transpose(b, k, n) : b;
      pack_weight(stored.data(), transposed ? n : k, transposed ? k : n, transposed, pack.data());
      CHECK(same_bits(pack, Packed(kernels, b, k, n, transposed).bytes));
      multiply(product_of(a.data(), pack.data(), c.data(), m, n, k));
      CHECK(same_bits(c, product));
      Floats first(static_cast<size_t>(n));
      multiply(product_of(a.data(), pack.data(), first.data(), 1, n, k));
      CHECK(same_bits(first, Floats(product.begin(), product.begin() + n)));
    }
    Floats dw(static_cast<size_t>(k * n));
    Floats scratch(static_cast<size_t>(grad_scratch_bytes(k, n, 2)) / sizeof(float));
    GradBlock g = gradient_of(a.data(), dy.data(), cuts.data(), 2, k, n, dw.data(), scratch.data());
    g.scratch_bytes = static_cast<int64_t>(scratch.size() * sizeof(float));
    weight_gradient(g);
    CHECK(same_bits(dw, gradient));
  }
  set_num_threads(0);
}

TEST_CASE("a product packs its matrix before any of its blocks reads it, alone and beside a gradient") {
  // Few rows, so that blocks follow the packing at once; what is read too early is a NaN.
  const int64_t m = 8, n = 2048, k = 67;
  const Floats a = numbers(1, m * k), b = numbers(2, k * n), dy = numbers(3, m * 16);
  const Floats product = chain(m, n, k, a, b, Floats(static_cast<size_t>(m * n)));
  const std::vector<int64_t> cuts = {0, m};
  const Floats gradient = gradient_chain(cuts, k, 16, a, dy, {});
  for (int threads : {1, 2, 4}) {
    set_num_threads(threads);
    Floats pack(static_cast<size_t>(packed_bytes(k, n)) / sizeof(float));
    Floats scratch(static_cast<size_t>(grad_scratch_bytes(k, 16, 1)) / sizeof(float));
    for (int turn = 0; turn < 100; ++turn) {
      std::fill(pack.begin(), pack.end(), std::nanf(""));
      Floats c(static_cast<size_t>(m * n)), dw(static_cast<size_t>(k * 16));
      GemmBlock whole = product_of(a.data(), nullptr, c.data(), m, n, k);
      whole.pack = {b.data(), k, n, false, pack.data()};
      GradBlock g = gradient_of(a.data(), dy.data(), cuts.data(), 1, k, 16, dw.data(), scratch.data());
      g.scratch_bytes = static_cast<int64_t>(scratch.size() * sizeof(float));
      if (turn % 2) multiply(whole);
      else multiply_beside(whole, g);
      REQUIRE(same_bits(c, product));
      if (turn % 2 == 0) REQUIRE(same_bits(dw, gradient));
    }
  }
  set_num_threads(0);
}

TEST_CASE("stacks and several matrices are packed as each alone, matrices without memory left out") {
  const int64_t k = 35, n = 50, count = 3;
  const Floats stack = numbers(1, count * k * n), other = numbers(2, k * n);
  for (int threads : {1, 3}) {
    set_num_threads(threads);
    const auto bytes = static_cast<size_t>(packed_bytes(k, n)), turned = static_cast<size_t>(packed_bytes(n, k));
    std::vector<char> packs(bytes * count), last(turned);
    const Unpacked all[] = {{stack.data(), k, n, false, packs.data(), count},
                            {ConstCells(), k, n, false, nullptr},
                            {other.data(), k, n, true, last.data()}};
    pack_weights(all, DType::f32);
    std::vector<char> one(bytes);
    for (int64_t i = 0; i < count; ++i) {
      pack_weight(stack.data() + i * k * n, k, n, false, one.data());
      CHECK(std::equal(one.begin(), one.end(), packs.begin() + static_cast<int64_t>(bytes) * i));
    }
    std::vector<char> alone(turned);
    pack_weight(other.data(), k, n, true, alone.data());
    CHECK(alone == last);
  }
  set_num_threads(0);
}
