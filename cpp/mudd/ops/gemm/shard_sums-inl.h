// The balanced binary tree over shards of dW: which sums wait, and what is added to them when. Built per level.
#pragma once

#include "mudd/ops/gemm/multiply-inl.h"

namespace mudd::MUDD_ISA {
namespace {

constexpr int kMaxLevels = 11;  // of the tree over kMaxShards, and one for sums in progress
static_assert(kMaxShards <= 1 << (kMaxLevels - 1));

// c[rows, cols] = last addend + ( ... + (first addend + sums)).
void add_all(const Addend* addends, int count, const float* sums, int64_t stride, float* c, int64_t ldc, int rows,
             int cols) {
  over_tile(rows, cols, [&](int i, int v, int n) {
    Vec sum = load(sums + i * stride + v, n);
    for (int a = 0; a < count; ++a) sum = load(addends[a].at + i * addends[a].stride + v, n) + sum;
    store(c + i * ldc + v, sum, n);
  });
}

// The next address on a cache line of its own: vectors of a panel must not straddle lines.
float* on_line(float* p) { return reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(p) + 63) / 64 * 64); }

// Levels of the tree over shards that wait, and one more for the last shard's sums in progress.
int levels(int shards) {
  int n = 1;
  while ((shards - 1) >> (n - 1)) ++n;
  return n;
}

// Where the sum of shard s waits, or the last one is in progress.
inline int level_of(int s, int shards) {
  return s == shards - 1 ? levels(shards) - 1 : __builtin_ctz(~static_cast<unsigned>(s));
}

// What is added to the sum of shard s at a tile: the finished subtrees to its left, small ones first; the last
// shard takes all of them, then the adds. below: the tile at level 0, the next levels `step` floats further; at:
// its place in dW.
inline int addends(const GradBlock& g, int s, const float* below, int64_t step, int64_t at, Addend* list) {
  const bool last = s == g.shards - 1;
  int count = 0;
  for (int t = 0; last ? s >> t != 0 : s >> t & 1; ++t)
    if (s >> t & 1) list[count++] = {below + t * step, kNr};
  for (int a = 0; last && a < g.n_add; ++a) list[count++] = {g.add[a] + at, g.ldo};
  return count;
}

}  // namespace
}  // namespace mudd::MUDD_ISA
