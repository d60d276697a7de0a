// peak_bf16 by vdpbf16ps or its emulation.
#pragma once

#include <utility>

#include "mudd/base/simd/dot_bf16.h"
#include "mudd/kernels/peak/peak.h"

namespace mudd::MUDD_ISA {
namespace {

template <size_t... I>
inline __attribute__((always_inline)) float dot_chains(std::index_sequence<I...>, int64_t rounds) {
  // The compiler must assume that each volatile read differs: it neither folds constants nor merges equal
  // chains.
  volatile float unknown = kPeakPair, zero = 0;
  const Vec a = Vec::set1(unknown), b = Vec::set1(unknown);
  Vec chain[] = {Vec::set1((static_cast<void>(I), zero))...};
  for (int64_t r = 0; r < rounds; ++r) ((chain[I] = dot_pairs(a, b, chain[I])), ...);
  Vec sum = Vec::zero();
  ((sum = sum + chain[I]), ...);
  return sum.sum();
}

float multiply_add_pairs(int64_t rounds) { return dot_chains(std::make_index_sequence<kPeakFmas>(), rounds); }

}  // namespace

const UnitKernels peak_bf16 = {4 * kPeakFmas * Vec::kLanes, multiply_add_pairs};

}  // namespace mudd::MUDD_ISA
