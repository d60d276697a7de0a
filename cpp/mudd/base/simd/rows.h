// Walking a row of floats by Vec: whole vectors, then one partial piece.
#pragma once

#include "mudd/base/simd/vec.h"

namespace mudd::MUDD_ISA {

// n floats from p; n may be kLanes (then the plain load) or less (other lanes zero).
inline Vec load(const float* p, int n) { return n == Vec::kLanes ? Vec::load(p) : Vec::load_n(p, n); }
inline void store(float* p, Vec v, int n) {
  if (n == Vec::kLanes) v.store(p);
  else v.store_n(p, n);
}

// body(d, n) for every piece of [0, width): n = kLanes, less for the last piece.
template <class Body>
inline void over_row(int64_t width, Body body) {
  int64_t d = 0;
  for (; d + Vec::kLanes <= width; d += Vec::kLanes) body(d, Vec::kLanes);
  if (d < width) body(d, static_cast<int>(width - d));
}

// v with lanes n and above set to zero (v itself for a whole vector).
inline Vec first_lanes(Vec v, int n) {
  if (n == Vec::kLanes) return v;
  float lanes[Vec::kLanes];
  v.store(lanes);
  return Vec::load_n(lanes, n);
}

// Folds a row: state = body(d, n, state) in four independent chains (the latency of an add is four of its
// throughput), combined as (0 + 1) + (2 + 3); pieces after the last group of four go to chain 0.
template <class State, class Body>
inline State row_reduce(int64_t width, State zero, Body body) {
  constexpr int kStep = Vec::kLanes;
  State s0 = zero, s1 = zero, s2 = zero, s3 = zero;
  int64_t d = 0;
  for (; d + 4 * kStep <= width; d += 4 * kStep) {
    s0 = body(d, kStep, s0);
    s1 = body(d + kStep, kStep, s1);
    s2 = body(d + 2 * kStep, kStep, s2);
    s3 = body(d + 3 * kStep, kStep, s3);
  }
  for (; d + kStep <= width; d += kStep) s0 = body(d, kStep, s0);
  if (d < width) s0 = body(d, static_cast<int>(width - d), s0);
  return (s0 + s1) + (s2 + s3);
}
template <class Body>
inline Vec row_sum(int64_t width, Body body) {
  return row_reduce(width, Vec::zero(), body);
}

}  // namespace mudd::MUDD_ISA
