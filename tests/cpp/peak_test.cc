// levels: the peak loops compute the stated operations, and the results are plausible.
#include "mudd/kernels/peak/peak.h"
#include "compare.h"
#include "mudd/base/parallel.h"
#include "mudd/kernels/peak/reference.h"

using namespace mudd;
using namespace mudd::test;

TEST_CASE("peak loops compute what they count") {
  for_each_row(peak_rows(), [](const auto& row) {
    for (int64_t rounds : {0, 1, 50}) {
      double want = 0;
      for (int i = 0; i < kPeakFmas; ++i)
        want += row.kernels->lanes * reference::multiply_add_chain(i + 0.999, 0.999, 0.999, rounds);
      CHECK(std::fabs(row.kernels->multiply_add(rounds) / want - 1) <= tolerance("peak.chain"));
    }
    const auto x = numbers(1, 1280);
    double sum = 0;
    for (float v : x) sum += v;
    CHECK(std::fabs(row.kernels->read(x.data(), 1280) - sum) <= tolerance("peak.read"));
  });
}

TEST_CASE("the loops of bf16 units compute what they count") {
  for_each_row(unit_rows(), [](const auto& row) {
    if (std::strstr(row.level, "bf16") == nullptr) return;  // the loops of fp32
    for (int64_t rounds : {0, 1, 50}) {
      const double multiply_adds = 0.5 * static_cast<double>(row.kernels->operations * rounds);
      CHECK(row.kernels->multiply_add(rounds) == kPeakFactor * kPeakFactor * multiply_adds);
    }
  });
}

TEST_CASE("measured limits are positive and leave the thread count alone") {
  set_num_threads(3);
  CHECK(peak_gflops(1) > 0.1);
  CHECK(bf16_peak_gflops(1) > 0.1);
  CHECK(read_gbps(2) > 0.1);
  CHECK(num_threads() == 3);
  set_num_threads(0);
  CHECK_THROWS_AS(peak_gflops(0), Error);
  CHECK_THROWS_AS(peak_gflops(1, 0), Error);
}
