// Rows of gemm: a block of C = A B on packed panels, and of dW = X^T dY, with operands in the row's type.
#include "mudd/kernels/gemm/gemm.h"
#include "rows.h"

namespace mudd::bench {
namespace {

// A matrix in fp32 and in bf16.
struct Matrix {
  Floats f;
  std::vector<bf16> h;

  explicit Matrix(int64_t n) : f(filled(n)), h(filled_bf16(n)) {}
  ConstCells cells(DType type) const { return type == DType::bf16 ? ConstCells(h.data()) : ConstCells(f.data()); }
};

auto multiply(const GemmKernels& kernels, DType compute, int64_t m, int64_t k, int64_t n) {
  const int64_t panels = (n + kernels.nr - 1) / kernels.nr;
  std::vector<char> packed(static_cast<size_t>(kernels.panel_bytes(k, panels * kernels.nr)));
  kernels.pack(filled(k * n).data(), n, k, n, 0, panels, packed.data());
  return [&kernels, compute, m, k, n, a = Matrix(m * k), packed = std::move(packed), c = filled(m * n)]() mutable {
    kernels.multiply({.a = a.cells(compute),
                      .lda = k,
                      .b = packed.data(),
                      .c = c.data(),
                      .ldc = n,
                      .m = m,
                      .n = n,
                      .k = k,
                      .compute = compute,
                      .epilogue = {}});
  };
}

auto weight_gradient(const GemmKernels& kernels, DType compute, int64_t m, int64_t rows, int64_t n) {
  return [&kernels, compute, m, rows, n, x = Matrix(rows * m), dy = Matrix(rows * n),
          scratch = Floats(static_cast<size_t>(kernels.grad_scratch(m, n, 2))), dw = filled(m * n)]() mutable {
    const int64_t cuts[] = {0, rows / 2, rows};
    kernels.weight_gradient({.x = x.cells(compute),
                             .ldx = m,
                             .dy = dy.cells(compute),
                             .ldy = n,
                             .cuts = cuts,
                             .shards = 2,
                             .m = m,
                             .n = n,
                             .out = dw.data(),
                             .ldo = n,
                             .scratch = scratch.data(),
                             .compute = compute});
  };
}

}  // namespace

void add_matmuls() {
  struct Shape {
    int64_t m, k, n;
  };
  for (DType compute : {DType::f32, DType::bf16})
    for (const Shape s : {Shape{1, 256, 704},
                          {1, 768, 2048},
                          {8, 768, 2048},
                          {192, 256, 256},
                          {192, 768, 2048},
                          {192, 2048, 768}}) {
      const std::string shape = std::to_string(s.m) + "x" + std::to_string(s.k) + "x" + std::to_string(s.n);
      const double flops = 2.0 * static_cast<double>(s.m * s.k * s.n);
      const double weights = static_cast<double>(s.n * s.k * size_of(compute));
      register_rows(gemm_rows(compute), "multiply/" + shape, {flops, s.m == 1 ? weights : 0.0},
                    [=](const GemmKernels& k) { return multiply(k, compute, s.m, s.k, s.n); });
      if (s.m > 8)
        register_rows(gemm_rows(compute), "gradient/" + shape, {.flops = flops},
                      [=](const GemmKernels& k) { return weight_gradient(k, compute, s.m, s.k, s.n); });
    }
}

}  // namespace mudd::bench
