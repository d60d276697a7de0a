// Table of kernel rows at every level this CPU has, one thread. Each line carries GFLOP/s and the share of the
// peak of the row's own level (products), or GB/s (ops that move data).
#include "mudd/kernels/gemm/gemm.h"
#include "rows.h"

using namespace mudd;
using namespace mudd::bench;

namespace {

void multiply_row(benchmark::State& state, const GemmKernels* kernels, int64_t m, int64_t k, int64_t n,
                  double peak) {
  const std::vector<float> a = filled(m * k), b = filled(k * n);
  const int64_t panels = (n + kernels->nr - 1) / kernels->nr;
  std::vector<float> packed(static_cast<size_t>(panels * kernels->nr * k)), c(static_cast<size_t>(m * n));
  kernels->pack(b.data(), n, k, n, 0, panels, packed.data());
  for (auto _ : state)
    kernels->multiply({.a = a.data(),
                       .lda = k,
                       .b = packed.data(),
                       .c = c.data(),
                       .ldc = n,
                       .m = m,
                       .n = n,
                       .k = k,
                       .epilogue = {}});
  count_flops(state, 2.0 * static_cast<double>(m * n * k), peak);
  if (m == 1) state.SetBytesProcessed(state.iterations() * n * k * 4);
}

void gradient_row(benchmark::State& state, const GemmKernels* kernels, int64_t m, int64_t rows, int64_t n,
                  double peak) {
  const std::vector<float> x = filled(rows * m), dy = filled(rows * n);
  std::vector<float> scratch(static_cast<size_t>(kernels->grad_scratch(m, n, 2))), dw(static_cast<size_t>(m * n));
  const int64_t cuts[] = {0, rows / 2, rows};
  for (auto _ : state)
    kernels->weight_gradient({.x = x.data(),
                              .ldx = m,
                              .dy = dy.data(),
                              .ldy = n,
                              .cuts = cuts,
                              .shards = 2,
                              .m = m,
                              .n = n,
                              .out = dw.data(),
                              .ldo = n,
                              .scratch = scratch.data()});
  count_flops(state, 2.0 * static_cast<double>(m * n * rows), peak);
}

void register_gemm() {
  struct Shape {
    int64_t m, k, n;
  };
  for (const auto& row : gemm_rows()) {
    if (!row.runs_here() || row.emulated()) continue;
    const double peak = level_peak(row.level);
    for (const Shape s : {Shape{1, 256, 704},
                          {1, 768, 2048},
                          {8, 768, 2048},
                          {192, 256, 256},
                          {192, 768, 2048},
                          {192, 2048, 768}}) {
      const std::string shape = std::to_string(s.m) + "x" + std::to_string(s.k) + "x" + std::to_string(s.n);
      const std::string name = std::string(row.name) + "." + row.level;
      benchmark::RegisterBenchmark((name + "/multiply/" + shape).c_str(), multiply_row, row.kernels, s.m, s.k, s.n,
                                   peak);
      if (s.m > 8)
        benchmark::RegisterBenchmark((name + "/gradient/" + shape).c_str(), gradient_row, row.kernels, s.m, s.k,
                                     s.n, peak);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  register_gemm();
  mudd::bench::register_attention();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
