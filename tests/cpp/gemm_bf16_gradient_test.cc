// Weight gradients of compute type bf16, and of f32 with operands in bf16, against double references over the
// rounded operands; gathered lists give equal bits.
#include <limits>

#include "compare.h"
#include "gemm_operands.h"
#include "mudd/kernels/gemm/gemm.h"
#include "mudd/kernels/gemm/reference.h"

using namespace mudd;
using namespace mudd::test;

namespace {

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
  CHECK(distance(out, want, want.size()) <= tolerance("gemm.gradient"));
}

}  // namespace

TEST_CASE("weight gradients of every mix of types, odd shards, gathered rows") {
  for_each_gemm([](const GemmKernels& kernels, DType compute) {
    for (int bits = 0; bits < 4; ++bits) {
      for (int64_t m : edges(kernels.mr))
        for (int64_t n : edges(kernels.nr)) check_gradient(kernels, compute, bits, {0, 3, 3, 8, 9}, m, n);
      check_gradient(kernels, compute, bits, {0, 0}, 3, 4);
      check_gradient(kernels, compute, bits, {0, 300, 557}, 7, 33);
      check_gradient(kernels, compute, bits, {0, 1029, 1030}, 13, 35);
      // More rows than AMX keeps packed of all columns at once: two blocks of 128 and one of 44.
      if (bits == 3) check_gradient(kernels, compute, bits, {0, 600, 1100, 2048}, 300, 35);
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
    CHECK(same_bits(plain, through));
  });
}
