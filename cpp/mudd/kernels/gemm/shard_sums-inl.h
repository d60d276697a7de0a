// The addends to the sums of dW at each shard, by the tree of base/shard_tree.h. Built per level.
#pragma once

#include "mudd/base/shard_tree.h"
#include "mudd/kernels/gemm/multiply-inl.h"

namespace mudd::MUDD_ISA {
namespace {

constexpr int kMaxLevels = 11;  // of the tree over kMaxShards, and one for sums in progress
static_assert(shard_tree::levels(kMaxShards) <= kMaxLevels);

// c[rows, cols] = last addend + ( ... + (first addend + sums)).
void add_all(const Addend* addends, int count, const float* sums, int64_t stride, float* c, int64_t ldc, int rows,
             int cols) {
  over_tile(rows, cols, [&](int i, int v, int n) {
    Vec sum = load(sums + i * stride + v, n);
    for (int a = 0; a < count; ++a) sum = load(addends[a].at + i * addends[a].stride + v, n) + sum;
    store(c + i * ldc + v, sum, n);
  });
}

// Align p to the next cache line: vectors of a panel must not straddle lines.
float* on_line(float* p) { return reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(p) + 63) / 64 * 64); }

// List the addends to the sum of shard s at a tile: the waiting sums, and at the last shard the adds. below:
// the tile at level 0, with `step` floats between levels; at: its place in dW.
inline int addends(const GradBlock& g, int s, const float* below, int64_t step, int64_t at, Addend* list) {
  int count = 0;
  shard_tree::each_waiting(s, g.shards, [&](int level) { list[count++] = {below + level * step, kNr}; });
  for (int a = 0; s == g.shards - 1 && a < g.n_add; ++a) list[count++] = {g.add[a] + at, g.ldo};
  return count;
}

}  // namespace
}  // namespace mudd::MUDD_ISA
