// Shared code of bench_kernels: test values, the peak of a level, and the registration of a table's rows.
#pragma once

#include <benchmark/benchmark.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "mudd/base/kernel_table.h"
#include "mudd/base/types.h"

namespace mudd::bench {

using Floats = std::vector<float>;

// Values with 24 significant bits, as in training: the portable level is slower on short ones (1, 0.5).
inline Floats filled(int64_t n) {
  Floats v(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) v[static_cast<size_t>(i)] = 0.9173e-3f * static_cast<float>(i % 1013 - 506);
  return v;
}
inline std::vector<bf16> filled_bf16(int64_t n) {
  return std::vector<bf16>(static_cast<size_t>(n), bf16{0x3f00});  // 0.5
}

// Returns the GFLOP/s of the registers-only loop for a row's level and operands, one thread; measured at the first
// call.
double row_peak(const std::string& name, const std::string& level);

// The work of one call: operations, compared with the peak, or bytes that it must read and write.
struct Work {
  double flops = 0, bytes = 0;
};
void count(benchmark::State& state, const Work& work, const std::string& name, const std::string& level);

// Registers a benchmark <row>.<level>/<what> for every row of a table that this CPU runs (emulations are for
// tests), or one benchmark that reports that there is none. make(kernels) returns the call to time, which owns its
// operands.
template <class Rows, class Make>
void register_rows(const Rows& rows, const std::string& what, Work work, Make make) {
  int registered = 0;
  for (const auto& row : rows) {
    if (!row.runs_here() || row.emulated()) continue;
    benchmark::RegisterBenchmark((std::string(row.name) + "." + row.level + "/" + what).c_str(),
                                 [row, work, make](benchmark::State& state) {
                                   auto call = make(*row.kernels);
                                   for (auto _ : state) {
                                     call();
                                     benchmark::ClobberMemory();
                                   }
                                   count(state, work, row.name, row.level);
                                 });
    ++registered;
  }
  if (registered == 0)
    benchmark::RegisterBenchmark(
        (std::string(rows[0].name) + ".none/" + what).c_str(),
        [](benchmark::State& state) { state.SkipWithError("no row of this table runs on this CPU"); });
}

void add_matmuls();
void add_attention();
void add_elementwise();
void add_softmaxes();
void add_norms();
void add_updates();

}  // namespace mudd::bench
