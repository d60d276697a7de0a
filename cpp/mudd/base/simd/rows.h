// Loops over a row of floats by Vec: whole vectors, then one partial piece.
#pragma once

#include "mudd/base/simd/vec.h"

namespace mudd::MUDD_ISA {

// Load n floats from p; n may be kLanes (a plain load) or less (other lanes zero).
inline Vec load(const float* p, int n) { return n == Vec::kLanes ? Vec::load(p) : Vec::load_n(p, n); }
inline void store(float* p, Vec v, int n) {
  if (n == Vec::kLanes) v.store(p);
  else v.store_n(p, n);
}

// Call body(d, n) for every piece of [0, width): n = kLanes, less for the last piece.
template <class Body>
inline void over_row(int64_t width, Body body) {
  int64_t d = 0;
  for (; d + Vec::kLanes <= width; d += Vec::kLanes) body(d, Vec::kLanes);
  if (d < width) body(d, static_cast<int>(width - d));
}

// Return v with lanes n and above set to zero (v itself for a whole vector).
inline Vec first_lanes(Vec v, int n) {
  if (n == Vec::kLanes) return v;
  float lanes[Vec::kLanes];
  v.store(lanes);
  return Vec::load_n(lanes, n);
}

// Sums over a row have sixteen lanes at every level: element d belongs to lane d % 16. A shorter Vec contains a
// part of them, one of kParts.
constexpr int kSumLanes = 16;
constexpr int kParts = kSumLanes / Vec::kLanes;

// Return the count of the first n lanes that are in the part from lane `first`.
inline int lanes_of_part(int n, int first) {
  return n <= first ? 0 : n - first < Vec::kLanes ? n - first : Vec::kLanes;
}

// Add the second half of the parts to the first until one is left: the upper levels of the tree of Vec::sum().
template <int kCount, class State>
inline State fold_parts(const State* parts) {
  if constexpr (kCount == 1) {
    return parts[0];
  } else {
    State half[kCount / 2];
    for (int i = 0; i < kCount / 2; ++i) half[i] = parts[i] + parts[i + kCount / 2];
    return fold_parts<kCount / 2>(half);
  }
}

constexpr int kSumChains = 4;

// Run the chains [first, first + kChains) of row_reduce over its groups of four; `s`: their states.
template <int kChains, class State, class Body>
inline void walk_groups(int64_t width, int first, State (&s)[kChains][kParts], Body body) {
  constexpr int kGroup = kSumChains * kSumLanes;
  for (int64_t d = first * kSumLanes; d - first * kSumLanes + kGroup <= width; d += kGroup)
#pragma GCC unroll 4
    for (int c = 0; c < kChains; ++c)
#pragma GCC unroll 4
      for (int p = 0; p < kParts; ++p) s[c][p] = body(d + c * kSumLanes + p * Vec::kLanes, Vec::kLanes, s[c][p]);
}

// Run chain 0 of row_reduce over the pieces after the groups of four.
template <class State, class Body>
inline void walk_rest(int64_t width, State (&s)[kParts], Body body) {
  int64_t d = width / (kSumChains * kSumLanes) * (kSumChains * kSumLanes);
  for (; d + kSumLanes <= width; d += kSumLanes)
#pragma GCC unroll 4
    for (int p = 0; p < kParts; ++p) s[p] = body(d + p * Vec::kLanes, Vec::kLanes, s[p]);
  const int left = static_cast<int>(width - d);
#pragma GCC unroll 4
  for (int p = 0; p < kParts; ++p)
    if (left > 0 && width > p * Vec::kLanes)
      s[p] = body(d + p * Vec::kLanes, lanes_of_part(left, p * Vec::kLanes), s[p]);
}

// Reduce a row: state = body(d, n, state) in four independent chains (the latency of an add is four times its
// throughput), combined as (0 + 1) + (2 + 3); pieces after the last group of four go to chain 0. The sixteen
// lanes of the result are folded to the lanes of a Vec. kChains: the chains of one loop over the row; states
// and body must fit the registers.
template <int kChains, class State, class Body>
inline State row_reduce(int64_t width, State zero, Body body) {
  State parts[kParts];
  State s[kSumChains / kChains][kChains][kParts];
  for (auto& walk : s)
    for (auto& chain : walk)
      for (State& part : chain) part = zero;
#pragma GCC unroll 4
  for (int w = 0; w < kSumChains / kChains; ++w) walk_groups<kChains>(width, w * kChains, s[w], body);
  walk_rest(width, s[0][0], body);
  const auto chain = [&](int c, int p) { return s[c / kChains][c % kChains][p]; };
#pragma GCC unroll 4
  for (int p = 0; p < kParts; ++p) parts[p] = (chain(0, p) + chain(1, p)) + (chain(2, p) + chain(3, p));
  return fold_parts<kParts>(parts);
}

// Four states in a loop, as with sixteen lanes; eight for short bodies.
constexpr int kFewChains = kSumChains / kParts, kManyChains = kParts == 2 ? kSumChains : kFewChains;

template <int kChains = kManyChains, class Body>
inline Vec row_sum(int64_t width, Body body) {
  return row_reduce<kChains>(width, Vec::zero(), body);
}

}  // namespace mudd::MUDD_ISA
