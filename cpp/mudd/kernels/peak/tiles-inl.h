// peak_bf16 by tdpbf16ps or its emulation: four registers of sums hide the latency.
#pragma once

#include <algorithm>

#include "mudd/base/simd/tiles.h"
#include "mudd/kernels/peak/peak.h"

namespace mudd::MUDD_ISA {
namespace {

constexpr int64_t kSums = 4 * kTileRows * kTileWords;

float multiply_add_tiles(int64_t rounds) {
  [[maybe_unused]] const TileSession session;
  Tiles t;
  float numbers[kSums];
  std::fill_n(numbers, kSums, kPeakPair);
  t.load<4>(numbers, kTileWords);
  t.load<5>(numbers, kTileWords);
  t.load<6>(numbers, kTileWords);
  t.load<7>(numbers, kTileWords);
  zero_sums(t);
  for (int64_t r = 0; r < rounds; ++r) {
    t.dot<0, 4, 6>();
    t.dot<1, 4, 7>();
    t.dot<2, 5, 6>();
    t.dot<3, 5, 7>();
  }
  store_sums(t, numbers, 2 * kTileWords);
  float sum = 0;
  for (float x : numbers) sum += x;
  return sum;
}

}  // namespace

const UnitKernels peak_bf16 = {2 * 2 * kTileWords * kSums, multiply_add_tiles};

}  // namespace mudd::MUDD_ISA
