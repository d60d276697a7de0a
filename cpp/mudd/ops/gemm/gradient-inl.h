// dW = X^T dY: a block of dW at a time; of each shard, chunks of rows of both operands are packed into L2 while
// the next rows are fetched; subtrees of shards wait in compact buffers. Built per level.
#pragma once

#include "mudd/ops/gemm/multiply-inl.h"
#include "mudd/ops/gemm/pack-inl.h"

namespace mudd::MUDD_ISA {
namespace {

constexpr int64_t kGradM = 384,
                  kGradN = 384;  // largest block of dW: then x and dy are read from memory once or twice
constexpr int kMaxLevels = 11;   // of the tree over kMaxShards, and one for sums in progress
static_assert(kGradM % kMr == 0 && kGradN % kNr == 0 && kMaxShards <= 1 << (kMaxLevels - 1));

constexpr MicroTable<1, kMr> kByColumns;

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

int64_t padded(int64_t n) { return (n + kNr - 1) / kNr * kNr; }
int64_t tiles(int64_t m) { return (m + kMr - 1) / kMr; }

// Levels of the tree over shards that wait, and one more for the last shard's sums in progress.
int levels(int shards) {
  int n = 1;
  while ((shards - 1) >> (n - 1)) ++n;
  return n;
}

// The rows that are packed next, fetched a few cache lines at a time: evenly, or they would fill all buffers for
// misses and hold up the tiles.
struct Rows {
  const GradBlock& g;
  const Block& at;
  int64_t row, end, line = 0;

  int64_t x_lines() const { return (at.m + 15) / 16; }
  int64_t row_lines() const { return x_lines() + (at.n + 15) / 16; }
  int64_t lines() const { return (end - row) * row_lines(); }

  MUDD_INLINE void fetch(int64_t count) {
    for (; count > 0 && row < end; --count) {
      const float* p = line < x_lines() ? gathered(g.x, g.ldx, g.x_rows, row) + at.r0 + line * 16
                                        : gathered(g.dy, g.ldy, g.dy_rows, row) + at.j0 + (line - x_lines()) * 16;
      __builtin_prefetch(p);
      if (++line < row_lines()) continue;
      line = 0;
      ++row;
    }
  }
};

// The sums of one block of dW (at most kGradM x kGradN) and its place in the scratch.
struct GradientBlock {
  const GradBlock& g;
  Block at;
  float *left, *right, *waiting;  // packed chunks, then `levels` blocks of sums, rows padded(at.n) apart

  GradientBlock(const GradBlock& whole, const Block& block)
      : g(whole),
        at(block),
        left(on_line(whole.scratch)),
        right(left + tiles(at.m) * kLeftTile),
        waiting(right + kKc * padded(at.n)) {}

  // Level t holds a sum over 2^t shards until its right-hand partner is done.
  float* level(int t) const { return waiting + t * at.m * padded(at.n); }

  void run() const {
    for (int s = 0; s < g.shards; ++s) {
      float* sums = level(s == g.shards - 1 ? levels(g.shards) - 1 : __builtin_ctz(~static_cast<unsigned>(s)));
      int64_t row = g.cuts[s];
      do {  // an empty shard counts as zeros
        const int64_t kc = at_most(kKc, g.cuts[s + 1] - row);
        chunk(s, row, kc, sums);
        row += kc;
      } while (row < g.cuts[s + 1]);
    }
  }

  // What is added to the sum of shard s at tile (r, j): the finished subtrees to its left, small ones first; the
  // last shard takes all of them, then the adds.
  int addends(int s, int64_t r, int64_t j, Addend* list) const {
    const bool last = s == g.shards - 1;
    int count = 0;
    for (int t = 0; last ? s >> t != 0 : s >> t & 1; ++t)
      if (s >> t & 1) list[count++] = {level(t) + r * padded(at.n) + j, padded(at.n)};
    for (int a = 0; last && a < g.n_add; ++a) list[count++] = {g.add[a] + (at.r0 + r) * g.ldo + at.j0 + j, g.ldo};
    return count;
  }

  // Where rows are counted from `row` on: a gathered matrix is counted through its list of rows.
  static const float* from_row(const float* x, int64_t stride, const int32_t* rows, int64_t row) {
    return rows ? x : x + row * stride;
  }

  // Rows [row, row + kc) of shard s; `sums` holds the shard's sums so far, and at its end what waits at its level.
  void chunk(int s, int64_t row, int64_t kc, float* sums) const {
    const bool first = row == g.cuts[s], last = row + kc == g.cuts[s + 1], out = last && s == g.shards - 1;
    pack_left(from_row(g.x + at.r0, g.ldx, g.x_rows, row), g.ldx, g.x_rows ? g.x_rows + row : nullptr, kc, at.m,
              left);
    pack_panels(from_row(g.dy + at.j0, g.ldy, g.dy_rows, row), g.ldy, g.dy_rows ? g.dy_rows + row : nullptr, kc,
                at.n, kc, 0, padded(at.n) / kNr, right);
    Rows ahead{g, at, row + kc, row + kc + at_most(g.cuts[g.shards] - row - kc, kKc)};
    const int64_t calls = tiles(at.m) * (padded(at.n) / kNr), lines = ahead.lines() / calls + 1;
    for (int64_t j = 0; j < at.n; j += kNr)
      for (int64_t r = 0; r < at.m; r += kMr) {
        ahead.fetch(lines);
        const int rows = static_cast<int>(at_most(kMr, at.m - r)), cols = static_cast<int>(at_most(kNr, at.n - j));
        finish(s, r, j, rows, cols, kc, first, last, out, sums + r * padded(at.n) + j);
      }
  }

  void finish(int s, int64_t r, int64_t j, int rows, int cols, int64_t kc, bool first, bool last, bool out,
              float* sums) const {
    alignas(64) float tile[kMr * kNr];
    Addend list[kMaxLevels + kMaxAdds];
    const int count = last ? addends(s, r, j, list) : 0;
    const bool direct = !out || cols == kNr;  // a partial panel goes out through a tile of full width
    float* c = out ? g.out + (at.r0 + r) * g.ldo + at.j0 + j : sums;
    const int64_t ldc = out ? g.ldo : padded(at.n);
    Ends ends{.start = sums, .start_stride = padded(at.n)};
    if (first) ends = g.start ? from(g.start + (at.r0 + r) * g.ldo + at.j0 + j, g.ldo, rows, cols, tile) : Ends{};
    ends.c = direct ? c : tile;
    ends.ldc = direct ? ldc : kNr;
    ends.addends = list;
    ends.count = direct ? count : 0;
    kByColumns.of[rows - 1](kc, left + r / kMr * kLeftTile, right + j * kc, ends);
    if (!direct) add_all(list, count, tile, kNr, c, ldc, rows, cols);
  }
};

int64_t grad_scratch(int64_t m, int64_t n, int shards) {
  m = at_most(m, kGradM);
  n = padded(at_most(n, kGradN));
  return 16 + tiles(m) * kLeftTile + n * kKc + levels(shards) * m * n;
}

void weight_gradient(const GradBlock& g) {
  for (int64_t j = 0; j < g.n; j += kGradN)
    for (int64_t r = 0; r < g.m; r += kGradM)
      GradientBlock(g, {r, j, at_most(kGradM, g.m - r), at_most(kGradN, g.n - j)}).run();
}

}  // namespace
}  // namespace mudd::MUDD_ISA
