// Shared by the files of bench_kernels: test numbers, the peak of a level, and the counters of a row.
#pragma once

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "mudd/kernels/peak/peak.h"

namespace mudd::bench {

inline std::vector<float> filled(int64_t n) {
  std::vector<float> v(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) v[static_cast<size_t>(i)] = 1e-3f * static_cast<float>(i % 1013 - 506);
  return v;
}

// GFLOP/s of a level's registers-only loop, one thread.
inline double level_peak(const std::string& level) {
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

inline void count_flops(benchmark::State& state, double flops, double peak) {
  state.counters["GFLOP/s"] = benchmark::Counter(1e-9 * flops, benchmark::Counter::kIsIterationInvariantRate);
  state.counters["of_peak"] =
      benchmark::Counter(1e-9 * flops / peak, benchmark::Counter::kIsIterationInvariantRate);
}

void register_attention();

}  // namespace mudd::bench
