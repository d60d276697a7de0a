// The one order in which sums over logical shards and graph runs are made (docs/contracts.md, 2): the balanced
// binary tree over n leaves in which node i of level t sums leaves [i * 2^t, (i + 1) * 2^t). Leaves beyond n are
// left out, so the tail of an n that is no power of two joins as late as the levels allow.
//
// Two walks give the same additions. With all leaves at hand: `pairs`. With leaves in order, one at a time: a
// binary counter, in which the sum of leaf i takes in the finished subtrees to its left (`each_waiting`) and then
// waits at `level_of` until its right-hand partner is done.
//
// Everything is inlined: kernel files of every instruction set include this header.
#pragma once

#include <cstdint>

#include "mudd/base/types.h"

namespace mudd {
constexpr int kMaxShards = 1024;
}

namespace mudd::shard_tree {

// Levels of the counter over n leaves: one for each finished subtree that can wait, and one for the last leaf.
MUDD_ALWAYS_INLINE constexpr int levels(int n) {
  int count = 1;
  while ((n - 1) >> (count - 1)) ++count;
  return count;
}

// The level at which the sum waits after leaf i; the last leaf has the top level for itself.
MUDD_ALWAYS_INLINE constexpr int level_of(int i, int n) {
  return i == n - 1 ? levels(n) - 1 : __builtin_ctz(~static_cast<unsigned>(i));
}

// Calls take(level) for each waiting sum that is added to leaf i of n, in the order of the additions: the smallest
// subtree first. The last leaf takes in everything that still waits.
template <class Take>
MUDD_ALWAYS_INLINE constexpr void each_waiting(int i, int n, const Take& take) {
  const bool last = i == n - 1;
  for (int t = 0; last ? i >> t != 0 : i >> t & 1; ++t)
    if (i >> t & 1) take(t);
}

// Calls add(left, right) for each addition of the tree over leaves 0 .. n-1, where the sum of a node takes the
// place of its first leaf; the total is at leaf 0.
template <class Add>
MUDD_ALWAYS_INLINE constexpr void pairs(int n, const Add& add) {
  for (int distance = 1; distance < n; distance *= 2)
    for (int left = 0; left + distance < n; left += 2 * distance) add(left, left + distance);
}

// The counter for sums that are single numbers.
template <class T, int kLevels = 32>
class Counter {
 public:
  // Adds leaf i of n, in order from 0; returns the sum that now waits, after the last leaf the total.
  MUDD_ALWAYS_INLINE constexpr T add(int i, int n, T value) {
    each_waiting(i, n, [&](int level) { value = waiting_[level] + value; });
    return waiting_[level_of(i, n)] = value;
  }

 private:
  T waiting_[kLevels] = {};
};

}  // namespace mudd::shard_tree
