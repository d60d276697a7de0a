// peak: the measured peak of this CPU at the active level, the reference of every "percent of peak".
#pragma once

#include <cstdint>

#include "mudd/base/kernel_table.h"

namespace mudd {

struct PeakKernels {
  int lanes;
  // Run `rounds` rounds of kPeakFmas independent multiply-adds of `lanes` lanes each, all in registers. The
  // result only keeps the compiler from removing them.
  float (*multiply_add)(int64_t rounds);
  // Read n floats once (n a multiple of 128).
  float (*read)(const float* p, int64_t n);
};
constexpr int kPeakFmas = 12;  // hides a latency of 4 to 6 cycles on two ports

// The instructions that multiply bf16 and add in fp32.
struct UnitKernels {
  int64_t operations;  // of a round, two for each multiply-add
  // As above. With hardware bf16, every multiply-add adds kPeakFactor squared to the result.
  float (*multiply_add)(int64_t rounds);
};
constexpr float kPeakFactor = 0.5f;
constexpr float kPeakPair = 0x1.007ep-1f;  // two bf16 values of kPeakFactor as 32 bits

MUDD_DECLARE_KERNELS(PeakKernels, peak_f32)
MUDD_DECLARE_KERNELS(UnitKernels, peak_bf16)
MUDD_DECLARE_UNIT_KERNELS(UnitKernels, peak_bf16)

std::span<const KernelRow<PeakKernels>> peak_rows();
std::span<const KernelRow<UnitKernels>> unit_rows();

// Measure the GFLOP/s of `threads` threads that only multiply and add in registers (two operations each), each
// at its best of `tries` tries of about 2 ms. Error if threads is not in [1, kMaxThreads] or tries is not in
// [1, 1000].
double peak_gflops(int threads, int tries = 20);
// The same for bf16 operands and fp32 sums, with the instructions of the active level.
double bf16_peak_gflops(int threads, int tries = 20);
// Measure the GB/s (10^9 bytes) of `threads` threads that read 512 MiB together; best of five.
double read_gbps(int threads);

}  // namespace mudd
