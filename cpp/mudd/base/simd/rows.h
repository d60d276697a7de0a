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

}  // namespace mudd::MUDD_ISA
