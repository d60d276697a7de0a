// The one order of sums over logical shards and graph runs (docs/contracts.md, 2): the balanced binary tree
// over n leaves in which node i of level t sums leaves [i * 2^t, (i + 1) * 2^t). Leaves after n are skipped, so
// the tail of an n that is no power of two joins as late as the levels allow.
//
// Two algorithms do the same additions. If all leaves are present: `pairs`. If leaves arrive in order: a binary
// counter, in which the sum of leaf i adds the finished subtrees to its left (`each_waiting`) and then waits at
// `level_of` until its right sibling is complete.
//
// Everything is inlined: kernel files of every instruction set include this header.
#pragma once

#include <cstdint>

#include "mudd/base/types.h"

namespace mudd {
constexpr int kMaxShards = 1024;
}

namespace mudd::shard_tree {

// Return the levels of the counter over n leaves: one for each finished subtree that can wait, and one for the
// last leaf.
MUDD_ALWAYS_INLINE constexpr int levels(int n) {
  int count = 1;
  while ((n - 1) >> (count - 1)) ++count;
  return count;
}

// Return the level at which the sum waits after leaf i; the last leaf has a separate top level.
MUDD_ALWAYS_INLINE constexpr int level_of(int i, int n) {
  return i == n - 1 ? levels(n) - 1 : __builtin_ctz(~static_cast<unsigned>(i));
}

// Call take(level) for each waiting sum that is added to leaf i of n, in the order of the additions: the
// smallest subtree first. The last leaf adds all that still wait.
template <class Take>
MUDD_ALWAYS_INLINE constexpr void each_waiting(int i, int n, const Take& take) {
  const bool last = i == n - 1;
  for (int t = 0; last ? i >> t != 0 : i >> t & 1; ++t)
    if (i >> t & 1) take(t);
}

// Call add(left, right) for each addition of the tree over leaves 0 .. n-1. The sum of a node replaces its
// first leaf; the total is at leaf 0.
template <class Add>
MUDD_ALWAYS_INLINE constexpr void pairs(int n, const Add& add) {
  for (int distance = 1; distance < n; distance *= 2)
    for (int left = 0; left + distance < n; left += 2 * distance) add(left, left + distance);
}

// The counter for sums that are scalars.
template <class T, int kLevels = 32>
class Counter {
 public:
  // Add leaf i of n, in order from 0; return the sum that now waits, after the last leaf the total.
  MUDD_ALWAYS_INLINE constexpr T add(int i, int n, T value) {
    each_waiting(i, n, [&](int level) { value = waiting_[level] + value; });
    return waiting_[level_of(i, n)] = value;
  }

 private:
  T waiting_[kLevels] = {};
};

}  // namespace mudd::shard_tree
