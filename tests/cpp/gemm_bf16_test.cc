// GEMMs of compute type bf16, and of f32 with operands in bf16, against double references over the rounded
// operands; a row's bits depend on neither its neighbours nor a gathered list.
#include <cstring>

#include "compare.h"
#include "gemm_operands.h"
#include "mudd/kernels/gemm/gemm.h"
#include "mudd/kernels/gemm/reference.h"
#include "mudd/ops/activation/reference.h"

using namespace mudd;
using namespace mudd::test;

namespace {

// bits: which of a, c, residual, gate, pre-activation are bf16.
struct Form {
  DType compute;
  int bits;
  bool transposed, accumulate, fused;

  DType type(int i) const { return bits >> i & 1 ? DType::bf16 : DType::f32; }
};

void check_product(const GemmKernels& kernels, const Form& form, int64_t m, int64_t n, int64_t k) {
  CAPTURE(m);
  CAPTURE(n);
  CAPTURE(k);
  CAPTURE(form.bits);
  const Floats b = numbers(2, k * n), bias = numbers(3, n), scale = numbers(4, m);
  Matrix a(form.type(0), numbers(1, m * k), m, k), c(form.type(1), numbers(5, m * n), m, n);
  Matrix residual(form.type(2), numbers(6, m * n), m, n), gate(form.type(3), numbers(7, m * n), m, n);
  Matrix pre(form.type(4), numbers(8, m * n), m, n);
  const Packed packed(kernels, b, k, n, form.transposed);
  const Floats seen_b = Matrix(DType::f32, b, k, n).seen(form.compute), start = c.seen();
  GemmBlock g{.a = a.cells(),
              .lda = a.stride,
              .b = packed.bytes.data(),
              .c = c.cells(),
              .ldc = c.stride,
              .m = m,
              .n = n,
              .k = k,
              .accumulate = form.accumulate,
              .compute = form.compute,
              .epilogue = {}};
  if (form.fused) {
    g.epilogue = {bias.data(),     Activation::silu, pre.cells(), pre.stride,  residual.cells(),
                  residual.stride, gate.cells(),     gate.stride, scale.data()};
  }
  kernels.multiply(g);
  const auto ad = widen(a.seen(form.compute)), bd = widen(seen_b);
  const Floats gates = gate.seen(), rest = residual.seen();
  std::vector<double> want(static_cast<size_t>(m * n)), want_pre;
  reference::gemm<double>(m, n, k, ad.data(), bd.data(), false, want.data());
  for (size_t i = 0; i < want.size(); ++i) {
    if (form.accumulate) want[i] += start[i];
    if (!form.fused) continue;
    want[i] += bias[i % n];
    want_pre.push_back(want[i]);
    want[i] =
        reference::activate(Activation::silu, static_cast<double>(gates[i])) * want[i] * scale[i / n] + rest[i];
  }
  const auto bound = [&](DType stored) {
    return tolerance("gemm.c") + (stored == DType::bf16 ? tolerance("gemm.stored") : 0);
  };
  CHECK(distance(c.seen(), want, want.size()) <= bound(c.type));
  if (form.fused) CHECK(distance(pre.seen(), want_pre, want.size()) <= bound(pre.type));
  CHECK(c.gaps_untouched());
  CHECK(pre.gaps_untouched());
}

}  // namespace

TEST_CASE("products of every mix of types on every edge of the tile") {
  for_each_gemm([](const GemmKernels& kernels, DType compute) {
    for (int64_t m : edges(kernels.mr))
      for (int64_t n : edges(kernels.nr))
        for (int64_t k : {0, 1, 2, 3, 17, 32, 33})
          for (int form = 0; form < 4; ++form)
            check_product(
                kernels,
                {compute, static_cast<int>(m + n + k) * 7 % 32, bool(form & 1), bool(form & 2), form == 3}, m, n,
                k);
    for (int bits = 0; bits < 32; ++bits)
      for (bool fused : {false, true}) {
        check_product(kernels, {compute, bits, false, fused, fused}, kernels.mr + 1, kernels.nr + 3, 21);
        check_product(kernels, {compute, bits, true, !fused, fused}, 1, 3 * kernels.nr + 3, 21);
      }
    check_product(kernels, {compute, 3, false, false, false}, 0, kernels.nr, 3);
    check_product(kernels, {compute, 3, false, false, false}, 3, 0, 3);
  });
}

TEST_CASE("a residual alone is added to the very sums") {
  for_each_gemm([](const GemmKernels& kernels, DType compute) {
    for (int64_t m : {kernels.mr - 1, 2 * kernels.mr, 2 * kernels.mr + 1})
      for (int64_t n : {3 * kernels.nr, 3 * kernels.nr + 3}) {
        const int64_t k = 64;
        Matrix a(DType::bf16, numbers(1, m * k), m, k);
        const Packed packed(kernels, numbers(2, k * n), k, n, false);
        const Floats residual = numbers(3, m * n);
        Floats sums(static_cast<size_t>(m * n)), c = sums;
        GemmBlock g = product_of(a.cells(), packed.bytes.data(), sums.data(), m, n, k, compute);
        g.lda = a.stride;
        kernels.multiply(g);
        g.c = c.data();
        g.epilogue.residual = residual.data(), g.epilogue.residual_stride = n;
        kernels.multiply(g);
        for (size_t i = 0; i < sums.size(); ++i) sums[i] += residual[i];
        CHECK(same_bits(c, sums));
      }
  });
}

TEST_CASE("products over several cache blocks") {
  for_each_gemm([](const GemmKernels& kernels, DType compute) {
    for (int64_t k : {255, 256, 257, 511, 512, 513, 1027})
      for (int bits : {0, 1, 2, 3})
        check_product(kernels, {compute, bits, false, bits == 3, bits == 2}, 13, 33, k);
    check_product(kernels, {compute, 3, false, false, true}, 97, 257, 9);
    check_product(kernels, {compute, 1, true, true, false}, 1, 5 * kernels.nr + 3, 1027);
  });
}

TEST_CASE("a row depends neither on its neighbours nor on the way to it") {
  for_each_gemm([](const GemmKernels& kernels, DType compute) {
    for (DType type : {DType::f32, DType::bf16}) {
      const int64_t m = 2 * kernels.mr + 1, n = 2 * kernels.nr + 5, k = 1101;
      const Packed packed(kernels, numbers(2, k * n), k, n, false);
      Matrix a(type, numbers(1, m * k), m, k, 0);
      Floats together(static_cast<size_t>(m * n)), alone = together, gathered = together;
      GemmBlock g = product_of(a.cells(), packed.bytes.data(), together.data(), m, n, k, compute);
      kernels.multiply(g);
      for (int64_t i = 0; i < m; ++i) {
        g.a = a.cells() + i * k;
        g.c = alone.data() + i * n;
        g.m = 1;
        kernels.multiply(g);
      }
      CHECK(same_bits(together, alone));
      std::vector<int32_t> rows;
      for (int64_t i = 0; i < m; ++i) rows.push_back(static_cast<int32_t>(m - 1 - i));
      g.a = a.cells();
      g.a_rows = rows.data();
      g.c = gathered.data();
      g.m = m;
      kernels.multiply(g);
      for (int64_t i = 0; i < m; ++i)
        CHECK(std::memcmp(&gathered[i * n], &together[(m - 1 - i) * n], static_cast<size_t>(n) * 4) == 0);
    }
  });
}
