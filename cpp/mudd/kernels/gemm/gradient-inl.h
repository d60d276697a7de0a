// dW = X^T dY, a block of dW at a time. For each shard, chunks of rows of x are packed into L2 and a few panels
// of dy into L1, which all columns of x pass; the sums of all tiles are in scratch. Built per level.
#pragma once

#include "mudd/kernels/gemm/chains-inl.h"
#include "mudd/kernels/gemm/pack-inl.h"
#include "mudd/kernels/gemm/shard_sums-inl.h"

namespace mudd::MUDD_ISA {
namespace {

// Largest block of dW. A chunk of x [kKc, kGradM] fills three quarters of an L2 of 1 MiB. A wider block packs x
// less often, but keeps more sums.
constexpr int64_t kGradM = 780 / kMr * kMr, kGradN = 1056;
static_assert(kGradM % kMr == 0 && kGradN % kNr == 0);

// x [rows, m] as tiles of kMr columns, each [rows in 32-bit units][kMr], kLeftTile floats apart, at most kKc
// deep. Stores are whole vectors; the next row, or the padding of the tile, takes the excess.
constexpr int64_t kLeftTile = (kKc * kMr + kLanes + 15) / 16 * 16;
constexpr int64_t kLeftGroup = 8 * kMr;  // columns at a time: few write streams, each of whole cache lines

template <class Unit, class From>
void pack_left(const From* x, int64_t ldx, const int32_t* x_rows, int64_t rows, int64_t m, float* packed) {
  static_assert(kMr <= kLanes);
  using As = typename Unit::Left;
  for (int64_t group = 0; group < m; group += kLeftGroup) {
    const int64_t end = at_most(group + kLeftGroup, m);
    for (int64_t r = 0; r < words<Unit>(rows); ++r) {
      const RowsOf<As, From> from(x, ldx, x_rows, r, rows);
      fetch_rows<As>(x, ldx, x_rows, r, rows, group, end);
      float* to = packed + group / kMr * kLeftTile + r * kMr;
      int64_t c = group;
      for (; c < end && c + kLanes <= m; c += kMr, to += kLeftTile) As::put(to, from.of, c, kLanes);
      for (; c < end; c += kMr, to += kLeftTile)
        As::put(to, from.of, c, static_cast<int>(m - c < kMr ? m - c : kMr));
    }
  }
}

// The sums of one block of dW (at most kGradM x kGradN) and its place in the scratch.
template <class Unit>
struct GradientBlock {
  static constexpr int64_t kChunk = kKc * Unit::Left::kPer;  // rows of x and dy that are packed at once

  const GradBlock& g;
  Block at;
  float *left, *right,
      *waiting;  // packed x, packed panels of dy, then `levels` blocks of tiles, panel after panel

  GradientBlock(const GradBlock& whole, const Block& block)
      : g(whole),
        at(block),
        left(on_line(whole.scratch)),
        right(left + tiles(at.m) * kLeftTile),
        waiting(right + kGroup * kKc * kNr) {}

  // Level t contains a sum over 2^t shards until its right sibling is complete.
  float* level(int t) const { return waiting + t * tiles(at.m) * panels(at.n) * kTile; }

  void run() const {
    for (int s = 0; s < g.shards; ++s) {
      float* sums = level(shard_tree::level_of(s, g.shards));
      int64_t row = g.cuts[s];
      do {  // an empty shard adds zeros
        const int64_t count = at_most(kChunk, g.cuts[s + 1] - row);
        chunk(s, row, count, sums);
        row += count;
      } while (row < g.cuts[s + 1]);
    }
  }

  int64_t after(int64_t row) const { return at_most(kChunk, g.cuts[g.shards] - row); }

  // Rows of dy for the panels from `group`, or for the first panels of the next rows, prefetched by the tiles
  // of `now` panels.
  RowsAhead next_panels(int64_t row, int64_t count, int64_t group, int64_t now) const {
    const int64_t kc = words<Unit>(count);
    if (group >= panels(at.n)) {
      row += count;
      count = after(row);
      group = 0;
    }
    return {from_row(g.dy + (at.j0 + group * kNr), g.ldy, g.dy_rows, row),
            g.ldy,
            g.dy_rows ? g.dy_rows + row : nullptr,
            count,
            at_most(kGroup * kNr, at.n - group * kNr),
            now * tiles(at.m),
            kc};
  }

  // Rows of x of the next chunk. Tiles of the last panels prefetch them; any earlier, they would leave L2.
  RowsAhead next_left(int64_t row, int64_t tiles_left, int64_t kc) const {
    return {from_row(g.x + at.r0, g.ldx, g.x_rows, row),
            g.ldx,
            g.x_rows ? g.x_rows + row : nullptr,
            after(row),
            at.m,
            tiles_left,
            kc};
  }

  // Return x from `row`; a gathered matrix is offset through its list of rows.
  static ConstCells from_row(ConstCells x, int64_t stride, const int32_t* rows, int64_t row) {
    return rows ? x : x + row * stride;
  }

  // Add rows [row, row + count) of shard s; `sums` contains the shard's sums before, and after its end the
  // waiting sum of its level.
  void chunk(int s, int64_t row, int64_t count, float* sums) const {
    const int64_t all = panels(at.n), kc = words<Unit>(count);
    const int32_t *x_rows = g.x_rows ? g.x_rows + row : nullptr, *dy_rows = g.dy_rows ? g.dy_rows + row : nullptr;
    with_cells(from_row(g.x + at.r0, g.ldx, g.x_rows, row),
               [&](const auto* x) { pack_left<Unit>(x, g.ldx, x_rows, count, at.m, left); });
    Chains<Unit, kGroup> chains;
    const int64_t turn = all - (all + 2) / 3;  // from this panel, prefetch rows of x
    RowsAhead left_ahead;
    for (int64_t group = 0; group < all; group += kGroup) {
      const int64_t here = at_most(kGroup, all - group), j0 = group * kNr;
      with_cells(from_row(g.dy + (at.j0 + j0), g.ldy, g.dy_rows, row),
                 [&](const auto* dy) { pack_panels<Unit>(dy, g.ldy, dy_rows, count, at.n - j0, 0, here, right); });
      if constexpr (chains.kUsed) {
        for (int64_t p = 0; p < here; ++p) chains.read_panel(p, right + p * kc * kNr, kc);
        for (int64_t r = 0; r < at.m; r += kMr) {
          chains.read_columns(left + r / kMr * kLeftTile, kc);
          for (int64_t p = 0; p < here; ++p)
            finish(s, row, count, r, group, p, right + p * kc * kNr, sums, chains, {}, {});
        }
        continue;
      }
      RowsAhead ahead = next_panels(row, count, group + kGroup, here);
      const bool both = here * tiles(at.m) < count;  // too few tiles for one stream
      for (int64_t p = 0; p < here; ++p) {
        if (group + p == turn) left_ahead = next_left(row + count, (all - turn) * tiles(at.m), kc);
        for (int64_t r = 0; r < at.m; r += kMr) {
          const Stream first = ahead.piece(), second = both ? ahead.piece() : left_ahead.piece();
          finish(s, row, count, r, group, p, right + p * kc * Unit::Step::kRow, sums, chains, first, second);
        }
      }
    }
  }

  // Compute the tile of rows from r and of panel `in_group` of a group.
  template <class InChains>
  void finish(int s, int64_t row, int64_t count, int64_t r, int64_t group, int64_t in_group, const float* packed,
              float* sums, InChains& chains, Stream first_fetch, Stream second_fetch) const {
    alignas(64) float full[kTile];
    Addend list[kMaxLevels + kMaxAdds];
    const bool first = row == g.cuts[s], last = row + count == g.cuts[s + 1], out = last && s == g.shards - 1;
    const int64_t panel = group + in_group, j = panel * kNr, tile = (panel * tiles(at.m) + r / kMr) * kTile;
    const int rows = static_cast<int>(at_most(kMr, at.m - r)), cols = static_cast<int>(at_most(kNr, at.n - j));
    const int added =
        last ? addends(g, s, level(0) + tile, level(1) - level(0), (at.r0 + r) * g.ldo + at.j0 + j, list) : 0;
    const bool direct = !out || cols == kNr;  // a partial panel is written through a tile of full width
    float* c = out ? g.out + (at.r0 + r) * g.ldo + at.j0 + j : sums + tile;
    const int64_t ldc = out ? g.ldo : kNr;
    Addend start{sums + tile, kNr};
    if (first)
      start = g.start ? from(g.start + (at.r0 + r) * g.ldo + at.j0 + j, g.ldo, rows, cols, full) : Addend{};
    else fetch_ahead(sums + tile + kTile, kTile * 4);
    int64_t kc = words<Unit>(count);
    if constexpr (InChains::kUsed) kc = chains.sum(rows, in_group, kc, &start) ? 0 : kc;
    const Ends ends{.start = start,
                    .addends = list,
                    .count = direct ? added : 0,
                    .c = direct ? c : full,
                    .ldc = direct ? ldc : kNr,
                    .half = nullptr,
                    .fetch = {first_fetch, second_fetch}};
    Unit::by_columns(rows, kc, left + r / kMr * kLeftTile, packed, ends);
    if (!direct) add_all(list, added, full, kNr, c, ldc, rows, cols);
  }
};

int64_t grad_scratch(int64_t m, int64_t n, int shards) {
  m = tiles(at_most(m, kGradM));
  n = panels(at_most(n, kGradN));
  return 16 + m * kLeftTile + kGroup * kKc * kNr + shard_tree::levels(shards) * m * n * kTile;
}

template <class Unit>
void weight_gradient(const GradBlock& g) {
  for (int64_t j = 0; j < g.n; j += kGradN)
    for (int64_t r = 0; r < g.m; r += kGradM)
      GradientBlock<Unit>(g, {r, j, at_most(kGradM, g.m - r), at_most(kGradN, g.n - j)}).run();
}

}  // namespace
}  // namespace mudd::MUDD_ISA
