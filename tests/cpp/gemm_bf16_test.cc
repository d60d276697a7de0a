// gemm rows of compute type bf16, and of f32 with operands in bf16, against double references over the
// rounded operands; rows, threads, gathered lists and calls cut in two give equal bits.
#include <algorithm>
#include <cstring>
#include <string>

#include "compare.h"
#include "mudd/base/parallel.h"
#include "mudd/ops/activation/reference.h"
#include "mudd/ops/gemm/gemm.h"
#include "mudd/ops/gemm/reference.h"

using namespace mudd;
using namespace mudd::test;
using Floats = std::vector<float>;

namespace {

constexpr double kBf16Step = 1.0 / 256;  // half the distance of neighbours, relative: what one rounding costs

bf16 narrow(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return {static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16)};
}

float wide(bf16 x) {
  const uint32_t bits = uint32_t{x.bits} << 16;
  float f;
  std::memcpy(&f, &bits, sizeof f);
  return f;
}

// A matrix with rows `stride` apart in either type; the gaps hold nan so that reading them shows.
struct Matrix {
  int64_t rows, cols, stride;
  DType type;
  Floats f;
  std::vector<bf16> h;

  Matrix(DType t, const Floats& x, int64_t r, int64_t c, int64_t gap = 3)
      : rows(r), cols(c), stride(c + gap), type(t) {
    f.assign(static_cast<size_t>(rows * stride), std::numeric_limits<float>::quiet_NaN());
    h.assign(f.size(), bf16{0x7fc0});
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < cols; ++j) {
        f[i * stride + j] = x[i * cols + j];
        h[i * stride + j] = narrow(x[i * cols + j]);
      }
  }
  Cells cells() { return type == DType::bf16 ? Cells(h.data()) : Cells(f.data()); }

  // What is stored, or what a product of the compute type sees of it.
  Floats seen(DType compute = DType::f32) const {
    Floats x;
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < cols; ++j) {
        const float stored = type == DType::bf16 ? wide(h[i * stride + j]) : f[i * stride + j];
        x.push_back(compute == DType::bf16 ? wide(narrow(stored)) : stored);
      }
    return x;
  }
  bool gaps_untouched() const {
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = cols; j < stride; ++j)
        if (!std::isnan(f[i * stride + j]) || h[i * stride + j].bits != 0x7fc0) return false;
    return true;
  }
};

bool same(const Floats& a, const Floats& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

Floats transpose(const Floats& x, int64_t rows, int64_t cols) {
  Floats t(x.size());
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < cols; ++j) t[j * rows + i] = x[i * cols + j];
  return t;
}

struct Packed {
  std::vector<char> bytes;

  // In two calls: a range must not touch its neighbours.
  Packed(const GemmKernels& kernels, const Floats& b, int64_t k, int64_t n, bool transposed) {
    const int64_t panels = (n + kernels.nr - 1) / kernels.nr, middle = panels / 2;
    bytes.assign(static_cast<size_t>(kernels.panel_bytes(k, panels * kernels.nr)), '\xff');
    const Floats stored = transposed ? transpose(b, k, n) : b;
    for (int part = 0; part < 2; ++part)
      (transposed ? kernels.pack_transposed : kernels.pack)(
          stored.data(), transposed ? k : n, k, n, part ? middle : 0, part ? panels : middle, bytes.data());
  }
};

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
  const auto bound = [&](DType stored) { return tolerance(32) + (stored == DType::bf16 ? kBf16Step : 0); };
  CHECK(distance(c.seen(), want, want.size()) <= bound(c.type));
  if (form.fused) CHECK(distance(pre.seen(), want_pre, want.size()) <= bound(pre.type));
  CHECK(c.gaps_untouched());
  CHECK(pre.gaps_untouched());
}

std::vector<int64_t> edges(int64_t t) { return {1, t - 1, t, t + 1, 2 * t + 1}; }

// Both compute types' rows; those of f32 only see bf16 operands here.
template <class Body>
void for_each(Body body) {
  for (DType compute : {DType::f32, DType::bf16})
    for_each_row(gemm_rows(compute), [&](const auto& row) { body(*row.kernels, compute); });
}

// The tree that the contract promises over shards, in double, then the adds.
std::vector<double> gradient(const std::vector<int64_t>& cuts, int64_t m, int64_t n, const Floats& x,
                             const Floats& dy) {
  const auto xd = widen(x), dyd = widen(dy);
  std::vector<double> dw(static_cast<size_t>(m * n));
  reference::weight_gradient<double>(cuts.back() - cuts.front(), m, n, xd.data(), dyd.data(), dw.data());
  return dw;
}

void check_gradient(const GemmKernels& kernels, DType compute, int bits, const std::vector<int64_t>& cuts,
                    int64_t m, int64_t n) {
  CAPTURE(m);
  CAPTURE(n);
  CAPTURE(bits);
  const int64_t rows = cuts.back();
  Matrix x(bits & 1 ? DType::bf16 : DType::f32, numbers(1, rows * m), rows, m);
  Matrix dy(bits & 2 ? DType::bf16 : DType::f32, numbers(2, rows * n), rows, n);
  const Floats more = numbers(3, m * n);
  const float* add[] = {more.data()};
  const int shards = static_cast<int>(cuts.size()) - 1;
  Floats out(more.size()),
      scratch(static_cast<size_t>(kernels.grad_scratch(m, n, shards)), std::numeric_limits<float>::quiet_NaN());
  GradBlock g{.x = x.cells(),
              .ldx = x.stride,
              .dy = dy.cells(),
              .ldy = dy.stride,
              .cuts = cuts.data(),
              .shards = shards,
              .m = m,
              .n = n,
              .out = out.data(),
              .ldo = n,
              .add = add,
              .n_add = 1,
              .scratch = scratch.data(),
              .compute = compute};
  kernels.weight_gradient(g);
  std::vector<double> want = gradient(cuts, m, n, x.seen(compute), dy.seen(compute));
  for (size_t i = 0; i < want.size(); ++i) want[i] += more[i];
  CHECK(distance(out, want, want.size()) <= tolerance(64));
}

}  // namespace

TEST_CASE("products of every mix of types on every edge of the tile") {
  for_each([](const GemmKernels& kernels, DType compute) {
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

TEST_CASE("products over several cache blocks") {
  for_each([](const GemmKernels& kernels, DType compute) {
    for (int64_t k : {255, 256, 257, 511, 512, 513, 1027})
      for (int bits : {0, 1, 2, 3})
        check_product(kernels, {compute, bits, false, bits == 3, bits == 2}, 13, 33, k);
    check_product(kernels, {compute, 3, false, false, true}, 97, 257, 9);
    check_product(kernels, {compute, 1, true, true, false}, 1, 5 * kernels.nr + 3, 1027);
  });
}

TEST_CASE("a row depends neither on its neighbours nor on the way to it") {
  for_each([](const GemmKernels& kernels, DType compute) {
    for (DType type : {DType::f32, DType::bf16}) {
      const int64_t m = 2 * kernels.mr + 1, n = 2 * kernels.nr + 5, k = 1101;
      const Packed packed(kernels, numbers(2, k * n), k, n, false);
      Matrix a(type, numbers(1, m * k), m, k, 0);
      Floats together(static_cast<size_t>(m * n)), alone = together, gathered = together;
      GemmBlock g{.a = a.cells(),
                  .lda = k,
                  .b = packed.bytes.data(),
                  .c = together.data(),
                  .ldc = n,
                  .m = m,
                  .n = n,
                  .k = k,
                  .compute = compute,
                  .epilogue = {}};
      kernels.multiply(g);
      for (int64_t i = 0; i < m; ++i) {
        g.a = a.cells() + i * k;
        g.c = alone.data() + i * n;
        g.m = 1;
        kernels.multiply(g);
      }
      CHECK(same(together, alone));
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

TEST_CASE("weight gradients of every mix of types, odd shards, gathered rows") {
  for_each([](const GemmKernels& kernels, DType compute) {
    for (int bits = 0; bits < 4; ++bits) {
      for (int64_t m : edges(kernels.mr))
        for (int64_t n : edges(kernels.nr)) check_gradient(kernels, compute, bits, {0, 3, 3, 8, 9}, m, n);
      check_gradient(kernels, compute, bits, {0, 0}, 3, 4);
      check_gradient(kernels, compute, bits, {0, 300, 557}, 7, 33);
      check_gradient(kernels, compute, bits, {0, 1029, 1030}, 13, 35);
      check_gradient(kernels, compute, bits, {0, 2, 3, 5, 6, 8, 9}, 49, 129);
    }
    // Gathered lists that name the rows in order give the bits of the rows themselves.
    const int64_t rows = 31, m = kernels.mr + 1, n = kernels.nr + 1, cuts[] = {0, 9, 31};
    Matrix x(DType::bf16, numbers(1, rows * m), rows, m), dy(DType::bf16, numbers(2, rows * n), rows, n);
    std::vector<int32_t> list(static_cast<size_t>(rows));
    for (int32_t i = 0; i < rows; ++i) list[static_cast<size_t>(i)] = i;
    Floats plain(static_cast<size_t>(m * n)), through = plain;
    Floats scratch(static_cast<size_t>(kernels.grad_scratch(m, n, 2)));
    GradBlock g{.x = x.cells(),
                .ldx = x.stride,
                .dy = dy.cells(),
                .ldy = dy.stride,
                .cuts = cuts,
                .shards = 2,
                .m = m,
                .n = n,
                .out = plain.data(),
                .ldo = n,
                .scratch = scratch.data(),
                .compute = compute};
    kernels.weight_gradient(g);
    g.x_rows = g.dy_rows = list.data();
    g.out = through.data();
    kernels.weight_gradient(g);
    CHECK(same(plain, through));
  });
}

// Numbers whose products reach from denormals to the largest.
Floats far_apart(uint64_t seed, int64_t n) {
  Floats x = numbers(seed, n);
  for (int64_t i = 0; i < n; ++i)
    x[i] = std::ldexp(x[i], static_cast<int>((i * 37 + static_cast<int64_t>(seed)) % 200) - 140);
  return x;
}

const GemmKernels* row_at(const std::string& level) {
  for (const auto& row : gemm_rows(DType::bf16))
    if (level == row.level && row.runs_here()) return row.kernels;
  return nullptr;
}

TEST_CASE("the bf16 units give the bits of their emulation") {
  for (const std::string level : {"avx512_bf16", "amx_bf16"}) {
    const GemmKernels *real = row_at(level), *emulated = row_at("emu_" + level);
    REQUIRE(emulated);
    std::printf("  %s%s\n", level.c_str(), real ? "" : ": not on this CPU");
    if (!real) continue;
    for (int64_t m : {1, 2, 17, 33})
      for (int64_t k : {1, 2, 33, 515}) {
        const int64_t n = 67, cuts[] = {0, k / 2, k};
        const Floats a = far_apart(1, m * k), b = far_apart(2, k * n), x = far_apart(3, k * m),
                     dy = far_apart(4, k * n);
        Floats c[2], dw[2];
        std::vector<bf16> half[2];  // also rounded by the units
        for (int i = 0; i < 2; ++i) {
          const GemmKernels& kernels = i ? *emulated : *real;
          const Packed packed(kernels, b, k, n, true);
          c[i].resize(static_cast<size_t>(m * n));
          half[i].resize(c[i].size());
          for (Cells out : {Cells(c[i].data()), Cells(half[i].data())})
            kernels.multiply({.a = a.data(),
                              .lda = k,
                              .b = packed.bytes.data(),
                              .c = out,
                              .ldc = n,
                              .m = m,
                              .n = n,
                              .k = k,
                              .compute = DType::bf16,
                              .epilogue = {}});
          dw[i].resize(static_cast<size_t>(m * n));
          Floats scratch(static_cast<size_t>(kernels.grad_scratch(m, n, 2)));
          kernels.weight_gradient({.x = x.data(),
                                   .ldx = m,
                                   .dy = dy.data(),
                                   .ldy = n,
                                   .cuts = cuts,
                                   .shards = 2,
                                   .m = m,
                                   .n = n,
                                   .out = dw[i].data(),
                                   .ldo = n,
                                   .scratch = scratch.data(),
                                   .compute = DType::bf16});
        }
        CHECK(std::memcmp(half[0].data(), half[1].data(), half[0].size() * sizeof(bf16)) == 0);
        CHECK(same(c[0], c[1]));
        CHECK(same(dw[0], dw[1]));
      }
  }
}

TEST_CASE("threads and drivers give the bits of one block") {
  const int64_t m = 101, n = 531, k = 67;
  const Floats w = numbers(2, k * n);
  Matrix a(DType::bf16, numbers(1, m * k), m, k), dy(DType::bf16, numbers(3, m * n), m, n);
  const std::vector<int64_t> cuts = {0, 49, 101};
  const GemmKernels& kernels = gemm_kernels(DType::bf16);
  Floats want(static_cast<size_t>(m * n)), want_dw(static_cast<size_t>(k * n));
  const Packed packed(kernels, w, k, n, false);
  GemmBlock g{.a = a.cells(),
              .lda = a.stride,
              .b = packed.bytes.data(),
              .c = want.data(),
              .ldc = n,
              .m = m,
              .n = n,
              .k = k,
              .compute = DType::bf16,
              .epilogue = {}};
  kernels.multiply(g);
  GradBlock d{.x = a.cells(),
              .ldx = a.stride,
              .dy = dy.cells(),
              .ldy = dy.stride,
              .cuts = cuts.data(),
              .shards = 2,
              .m = k,
              .n = n,
              .out = want_dw.data(),
              .ldo = n,
              .compute = DType::bf16};
  Floats block(static_cast<size_t>(kernels.grad_scratch(k, n, 2)));
  d.scratch = block.data();
  kernels.weight_gradient(d);
  for (int threads : {1, 2, 3}) {
    set_num_threads(threads);
    for (bool transposed : {false, true}) {
      std::vector<char> pack(static_cast<size_t>(packed_bytes(k, n, DType::bf16)));
      const Floats stored = transposed ? transpose(w, k, n) : w;
      pack_weight(stored.data(), transposed ? n : k, transposed ? k : n, transposed, pack.data(), DType::bf16);
      CHECK(std::memcmp(pack.data(), packed.bytes.data(), pack.size()) == 0);
      Floats c(want.size());
      g.b = pack.data();
      g.c = c.data();
      multiply(g);
      CHECK(same(c, want));
    }
    Floats dw(want_dw.size());
    Floats scratch(static_cast<size_t>(grad_scratch_bytes(k, n, 2, 1, DType::bf16)) / sizeof(float));
    d.out = dw.data();
    d.scratch = scratch.data();
    d.scratch_bytes = static_cast<int64_t>(scratch.size() * sizeof(float));
    weight_gradient(d);
    CHECK(same(dw, want_dw));
  }
  set_num_threads(0);
}
