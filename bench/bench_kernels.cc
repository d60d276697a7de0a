// Table of kernel rows at every level this CPU has, one thread. Each line carries GFLOP/s and the share of the
// peak of the row's own level (products), or GB/s (ops that move data).
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "mudd/ops/gemm/gemm.h"
#include "mudd/ops/peak/peak.h"

using namespace mudd;

namespace {

std::vector<float> filled(int64_t n) {
  std::vector<float> v(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) v[static_cast<size_t>(i)] = 1e-3f * static_cast<float>(i % 1013 - 506);
  return v;
}

// GFLOP/s of a level's registers-only loop, one thread.
double level_peak(const std::string& level) {
  for (const auto& row : peak_rows())
    if (level == row.level) {
      benchmark::DoNotOptimize(row.kernels->multiply_add(1 << 18));
      double best = 0;
      for (int i = 0; i < 5; ++i) {
        const auto start = std::chrono::steady_clock::now();
        benchmark::DoNotOptimize(row.kernels->multiply_add(1 << 20));
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
        best = std::max(best, 2e-9 * kPeakFmas * row.kernels->lanes * (1 << 20) / took.count());
      }
      return best;
    }
  return 0;
}

void count_flops(benchmark::State& state, double flops, double peak) {
  state.counters["GFLOP/s"] = benchmark::Counter(1e-9 * flops, benchmark::Counter::kIsIterationInvariantRate);
  state.counters["of_peak"] =
      benchmark::Counter(1e-9 * flops / peak, benchmark::Counter::kIsIterationInvariantRate);
}

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
  std::vector<float> scratch(static_cast<size_t>(kernels->grad_scratch(m, n, rows))),
      dw(static_cast<size_t>(m * n));
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
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
