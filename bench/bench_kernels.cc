// Measures every row of every kernel table at every level of this CPU, one thread. A line has GFLOP/s and the
// percentage of the peak for the row's level and operand type, or GB/s if the row moves data.
#include <algorithm>
#include <chrono>
#include <map>

#include "mudd/kernels/peak/peak.h"
#include "rows.h"

namespace mudd::bench {
namespace {

// Returns the best of five rates of a loop in registers.
double best_rate(double operations, float (*loop)(int64_t rounds)) {
  double best = 0;
  benchmark::DoNotOptimize(loop(1 << 18));
  for (int i = 0; i < 5; ++i) {
    const auto start = std::chrono::steady_clock::now();
    benchmark::DoNotOptimize(loop(1 << 20));
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    best = std::max(best, 1e-9 * operations * (1 << 20) / took.count());
  }
  return best;
}

double measured_peak(bool units, const std::string& level) {
  if (units)
    for (const auto& row : unit_rows())
      if (level == row.level)
        return best_rate(static_cast<double>(row.kernels->operations), row.kernels->multiply_add);
  for (const auto& row : peak_rows())
    if (level == row.level) return best_rate(2.0 * kPeakFmas * row.kernels->lanes, row.kernels->multiply_add);
  return 0;
}

void add_peaks() {
  constexpr int64_t kRounds = 1 << 10, kRead = 1 << 14;
  for (const auto& row : peak_rows()) {
    if (!row.runs_here() || row.emulated()) continue;
    const std::span one(&row, 1);
    register_rows(
        one, "multiply_add", {.flops = 2.0 * kPeakFmas * row.kernels->lanes * kRounds},
        [](const PeakKernels& k) { return [&k] { benchmark::DoNotOptimize(k.multiply_add(kRounds)); }; });
    register_rows(one, "read", {.bytes = 4.0 * kRead}, [](const PeakKernels& k) {
      return [&k, x = filled(kRead)] { benchmark::DoNotOptimize(k.read(x.data(), kRead)); };
    });
  }
  for (const auto& row : unit_rows()) {
    if (!row.runs_here() || row.emulated()) continue;
    register_rows(
        std::span(&row, 1), "multiply_add", {.flops = static_cast<double>(row.kernels->operations) * kRounds},
        [](const UnitKernels& k) { return [&k] { benchmark::DoNotOptimize(k.multiply_add(kRounds)); }; });
  }
}

}  // namespace

double row_peak(const std::string& name, const std::string& level) {
  static std::map<std::pair<bool, std::string>, double> known;
  const bool units = name.ends_with("_bf16");
  const auto [place, is_new] = known.try_emplace({units, level});
  if (is_new) place->second = measured_peak(units, level);
  return place->second;
}

void count(benchmark::State& state, const Work& work, const std::string& name, const std::string& level) {
  const auto rate = [&](double x) { return benchmark::Counter(x, benchmark::Counter::kIsIterationInvariantRate); };
  if (work.flops > 0) {
    state.counters["GFLOP/s"] = rate(1e-9 * work.flops);
    state.counters["of_peak"] = rate(1e-9 * work.flops / row_peak(name, level));
  }
  if (work.bytes > 0) state.counters["GB/s"] = rate(1e-9 * work.bytes);
}

}  // namespace mudd::bench

int main(int argc, char** argv) {
  using namespace mudd::bench;
  add_peaks();
  add_matmuls();
  add_attention();
  add_elementwise();
  add_softmaxes();
  add_norms();
  add_updates();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  return benchmark::RunSpecifiedBenchmarks() > 0 ? 0 : 1;  // 1: the filter matches no row
}
