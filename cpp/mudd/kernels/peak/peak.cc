#include "mudd/kernels/peak/peak.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <vector>

#include "mudd/base/arena.h"
#include "mudd/base/parallel.h"

namespace mudd {

std::span<const KernelRow<PeakKernels>> peak_rows() {
  static const KernelRow<PeakKernels> rows[] = {MUDD_KERNEL_ROWS(peak_f32)};
  return rows;
}

std::span<const KernelRow<UnitKernels>> unit_rows() {
  static const KernelRow<UnitKernels> rows[] = {MUDD_UNIT_KERNEL_ROWS(peak_bf16), MUDD_KERNEL_ROWS(peak_bf16)};
  return rows;
}

namespace {

// Runs exactly `threads` threads during its lifetime.
class Threads {
 public:
  explicit Threads(int threads) : before_(num_threads()) {
    check(threads >= 1 && threads <= kMaxThreads, "peak", "threads: expected 1 to ", kMaxThreads, ", got ",
          threads);
    set_num_threads(threads);
  }
  ~Threads() { set_num_threads(before_); }

 private:
  int before_;
};

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Return the sum over threads of each one's best rate: `work` divided by the seconds of body(task), in `tries`
// tries of all threads at once. Threads measure their own time, which excludes their start and other programs.
template <class Body>
double summed_rate(int threads, int tries, double work, Body body) {
  std::vector<double> best(static_cast<size_t>(threads), 0.0);
  parallel_for(threads, [&](int64_t task, int) {
    for (int i = 0; i < tries; ++i) {
      const auto start = std::chrono::steady_clock::now();
      const float result = body(task);
      const double rate = work / std::max(1e-9, seconds_since(start));
      check(std::isfinite(result), "peak", "the loop gave a number that is not finite");
      best[static_cast<size_t>(task)] = std::max(best[static_cast<size_t>(task)], rate);
    }
  });
  double sum = 0;
  for (double b : best) sum += b;
  return sum;
}

// Return the GFLOP/s of a loop with `operations` operations a round.
double loop_gflops(int threads, int tries, double operations, float (*loop)(int64_t rounds)) {
  check(tries >= 1 && tries <= 1000, "peak", "tries: expected 1 to 1000, got ", tries);
  const Threads exactly(threads);
  const auto start = std::chrono::steady_clock::now();
  int64_t rounds = 16;  // grows to 1 to 2 ms; an emulated instruction takes seconds for 2 ms of hardware
  while (loop(rounds) < 0 || seconds_since(start) < 2e-3) rounds *= 2;
  return summed_rate(threads, tries, 1e-9 * operations * static_cast<double>(rounds),
                     [&](int64_t) { return loop(rounds); });
}

}  // namespace

double peak_gflops(int threads, int tries) {
  const PeakKernels& kernels = choose(peak_rows());
  return loop_gflops(threads, tries, 2.0 * kPeakFmas * kernels.lanes, kernels.multiply_add);
}

double bf16_peak_gflops(int threads, int tries) {
  const UnitKernels& kernels = choose(unit_rows());
  return loop_gflops(threads, tries, static_cast<double>(kernels.operations), kernels.multiply_add);
}

double read_gbps(int threads) {
  const Threads exactly(threads);
  const PeakKernels& kernels = choose(peak_rows());
  const int64_t floats = int64_t{1} << 27, share = floats / threads / 128 * 128;
  const Arena arena(floats * 4);  // huge pages, like the weights
  auto* memory = reinterpret_cast<float*>(arena.data());
  std::fill_n(memory, floats, 1.0f);
  // Wall-clock time: a thread that reads before the others start would have the whole bandwidth.
  double best = 0;
  for (int i = 0; i < 5; ++i) {
    std::vector<float> sums(static_cast<size_t>(threads));
    const auto start = std::chrono::steady_clock::now();
    parallel_for(threads,
                 [&](int64_t t, int) { sums[static_cast<size_t>(t)] = kernels.read(memory + t * share, share); });
    best = std::max(best, 4e-9 * static_cast<double>(share * threads) / seconds_since(start));
    for (float sum : sums) check(sum > 0, "peak", "read: the sum of ones is ", sum);
  }
  return best;
}

}  // namespace mudd
