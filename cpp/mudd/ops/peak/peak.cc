#include "mudd/ops/peak/peak.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <vector>

#include "mudd/base/parallel.h"

namespace mudd {

std::span<const KernelRow<PeakKernels>> peak_rows() {
  static const KernelRow<PeakKernels> rows[] = {
#define MUDD_KERNEL(name, level) {#name, #level, &level::name},
#include "mudd/ops/peak/kernels.inc"
#undef MUDD_KERNEL
  };
  return rows;
}

namespace {

// Exactly `threads` threads while it lives.
class Threads {
 public:
  explicit Threads(int threads) : before_(num_threads()) {
    check(threads >= 1 && threads <= kMaxThreads, "peak", "threads: expected 1 to ", kMaxThreads, ", got ", threads);
    set_num_threads(threads);
  }
  ~Threads() { set_num_threads(before_); }

 private:
  int before_;
};

// Seconds that one task per thread takes; body(task) gives a number that must be finite.
template <class Body>
double seconds(int threads, Body body) {
  std::vector<float> results(static_cast<size_t>(threads));
  const auto start = std::chrono::steady_clock::now();
  parallel_for(threads, [&](int64_t task, int) { results[static_cast<size_t>(task)] = body(task); });
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  for (float r : results) check(std::isfinite(r), "peak", "the loop gave a number that is not finite");
  return took.count();
}

}  // namespace

double peak_gflops(int threads) {
  const Threads exactly(threads);
  const PeakKernels& kernels = choose(peak_rows());
  int64_t rounds = 1 << 16;
  double best = 0;
  for (int attempt = 0; attempt < 8; ++attempt) {
    const double took = seconds(threads, [&](int64_t) { return kernels.multiply_add(rounds); });
    best = std::max(best, 2e-9 * kPeakFmas * kernels.lanes * static_cast<double>(rounds) * threads / took);
    if (took < 5e-3) rounds *= 4;  // starting the threads must not count
  }
  return best;
}

double read_gbps(int threads) {
  const Threads exactly(threads);
  const PeakKernels& kernels = choose(peak_rows());
  const int64_t floats = int64_t{1} << 26, share = floats / threads / 128 * 128;
  std::vector<float> memory(static_cast<size_t>(floats), 1.0f);
  double best = 0;
  for (int attempt = 0; attempt < 4; ++attempt) {
    const double took = seconds(threads, [&](int64_t t) { return kernels.read(memory.data() + t * share, share); });
    best = std::max(best, 4e-9 * static_cast<double>(share) * threads / took);
  }
  return best;
}

}  // namespace mudd
