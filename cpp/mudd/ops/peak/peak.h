// peak: what this CPU can do at the active level, measured: the yardstick of every "share of peak".
#pragma once

#include <cstdint>

#include "mudd/base/kernel_table.h"

namespace mudd {

struct PeakKernels {
  int lanes;
  // `rounds` rounds of kPeakFmas independent multiply-adds of `lanes` lanes each, all in registers.
  // The result only keeps the compiler from removing them.
  float (*multiply_add)(int64_t rounds);
  // Reads n floats once (n a multiple of 128).
  float (*read)(const float* p, int64_t n);
};
constexpr int kPeakFmas = 12;  // hides a latency of 4 to 6 cycles on two ports

#define MUDD_KERNEL(name, level) \
  namespace level {              \
  extern const PeakKernels name; \
  }
#include "mudd/ops/peak/kernels.inc"
#undef MUDD_KERNEL

std::span<const KernelRow<PeakKernels>> peak_rows();

// GFLOP/s of `threads` threads that only multiply and add in registers (two operations each), each at its best of
// 20 tries of about 2 ms. Error if threads is not in [1, kMaxThreads].
double peak_gflops(int threads);
// GB/s (10^9 bytes) that `threads` threads read together from 512 MiB; best of five.
double read_gbps(int threads);

}  // namespace mudd
