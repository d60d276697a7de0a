// dW = X^T dY on AMX tile registers. Multiplication is so fast that sums must stay in L2: a few panels of dy
// pass all rows before the next ones, with the sums that wait for other shards in L2. x is packed once, or once
// for each group of panels if it is too long to keep. Built for the levels amx_bf16 and emu_amx_bf16.
#pragma once

#include "mudd/kernels/gemm/pack-inl.h"
#include "mudd/kernels/gemm/shard_sums-inl.h"
#include "mudd/kernels/gemm/tiles-inl.h"

namespace mudd::MUDD_ISA {
namespace {

constexpr int64_t kTileGradM = 512, kTileGradN = 8192;
constexpr int64_t kPanelsAtOnce = 2;

// Floats for packed x of blocks of up to m columns: 2,048 rows, or fewer if they would exceed half of L2.
inline int64_t left_floats(int64_t m) {
  return at_most(int64_t{1} << 18, 1024 * kMr * tiles(at_most(m, kTileGradM)));
}

// Transposes 16 x 16 pairs of rows, which are read in memory order.
template <class From>
struct LeftPacker {
  const From* x;
  int64_t ldx;
  const int32_t* list;
  int64_t count;  // rows

  RowsOf<AsPairs, From> rows(int64_t word) const { return {x, ldx, list, word, count}; }

  // Pack 32-bit units [word, word + 16) of `depth`, of all m columns.
  void words_from(int64_t word, int64_t m, int64_t depth, float* to) const {
    const From *now[kTileRows][2], *next[kTileRows][2];
    const bool more = word + kTileWords < depth;
    for (int i = 0; i < kTileRows; ++i)
      for (int p = 0; p < 2; ++p) {
        now[i][p] = rows(word + i).of[p];
        const From* ahead = more ? rows(word + kTileWords + i).of[p] : nullptr;
        next[i][p] = ahead ? ahead : x;
      }
    for (int64_t c = 0; c < m; c += kTileRows) {
      Vec block[kTileRows];
#pragma GCC unroll 16
      for (int i = 0; i < kTileRows; ++i) {
        block[i] = AsPairs::words(now[i], c, lanes_left(m - c));
        if (c % kLine<From> == 0) __builtin_prefetch(next[i][0] + c), __builtin_prefetch(next[i][1] + c);
      }
      transpose(block);
      float* at = to + c / kMr * (kMr * depth) + word * kMr + c % kMr * kTileWords;
#pragma GCC unroll 16
      for (int i = 0; i < kTileRows; ++i) block[i].store(at + i * kTileWords);
    }
  }
};

// Rows of one shard, or a part of them, and the place of their packed copy.
struct Rows {
  int shard;
  int64_t begin, count;
  const float* left;
};

class TileGradient {
 public:
  TileGradient(const GradBlock& g, const Block& at)
      : g_(g),
        at_(at),
        left_(on_line(g.scratch)),
        right_(left_ + left_floats(g.m)),
        waiting_(right_ + kPanelsAtOnce * kKc * kNr) {}

  // Return the depth of all rows in 32-bit units, with the padding of each part of a shard.
  static int64_t all_words(const GradBlock& g) {
    int64_t sum = 0;
    for (int s = 0; s < g.shards; ++s)
      for (int64_t row = g.cuts[s]; row < g.cuts[s + 1]; row += kChunk)
        sum += words<TileUnit>(at_most(kChunk, g.cuts[s + 1] - row));
    return sum;
  }

  void run() {
    const bool kept = all_words(g_) * kMr * tiles(at_.m) <= left_floats(g_.m);
    for (int64_t j = 0; j < panels(at_.n); j += kPanelsAtOnce) {
      float* left = left_;
      for (int s = 0; s < g_.shards; ++s) {
        int64_t row = g_.cuts[s];
        do {  // an empty shard adds zeros
          const int64_t count = at_most(kChunk, g_.cuts[s + 1] - row);
          if (!kept || j == 0) pack_x(row, count, left);
          some_panels(j, {s, row, count, left});
          if (kept) left += words<TileUnit>(count) * kMr * tiles(at_.m);
          row += count;
        } while (row < g_.cuts[s + 1]);
      }
    }
  }

 private:
  static constexpr int64_t kChunk = kKc * TileUnit::Left::kPer;  // rows at a time

  void pack_x(int64_t row, int64_t count, float* left) const {
    const int32_t* list = g_.x_rows ? g_.x_rows + row : nullptr;
    const ConstCells from = g_.x + (at_.r0 + (list ? 0 : row * g_.ldx));
    with_cells(from, [&](const auto* x) {
      const LeftPacker<std::remove_cvref_t<decltype(*x)>> packer{x, g_.ldx, list, count};
      for (int64_t w = 0; w < words<TileUnit>(count); w += kTileWords)
        packer.words_from(w, at_.m, words<TileUnit>(count), left);
    });
  }

  void some_panels(int64_t first, const Rows& rows) {
    const int64_t here = at_most(kPanelsAtOnce, panels(at_.n) - first), j0 = first * kNr;
    const int64_t kc = words<TileUnit>(rows.count);
    const int32_t* list = g_.dy_rows ? g_.dy_rows + rows.begin : nullptr;
    with_cells(g_.dy + (at_.j0 + j0 + (list ? 0 : rows.begin * g_.ldy)), [&](const auto* dy) {
      pack_panels<TileUnit>(dy, g_.ldy, list, rows.count, at_.n - j0, 0, here, right_);
    });
    for (int64_t p = 0; p < here; ++p)
      for (int64_t r = 0; r < at_.m; r += kMr)
        tile(rows, r, j0 + p * kNr, right_ + p * kc * kNr, (p * tiles(at_.m) + r / kMr) * kTile);
  }

  // Level t contains a sum over 2^t shards until its right sibling is complete.
  float* level(int t) const { return waiting_ + t * tiles(at_.m) * at_most(panels(at_.n), kPanelsAtOnce) * kTile; }

  // Compute the tile of rows from r and columns from j of the block; `place`: the offset of the tile in each
  // level.
  void tile(const Rows& rows, int64_t r, int64_t j, const float* b, int64_t place) {
    alignas(64) float stored[kTile];
    Addend list[kMaxLevels + kMaxAdds];
    const int s = rows.shard, m = static_cast<int>(at_most(kMr, at_.m - r)),
              n = static_cast<int>(at_most(kNr, at_.n - j));
    const bool first = rows.begin == g_.cuts[s], last = rows.begin + rows.count == g_.cuts[s + 1];
    const bool out = last && s == g_.shards - 1;
    const int64_t kc = words<TileUnit>(rows.count), at = (at_.r0 + r) * g_.ldo + at_.j0 + j;
    float* sums = level(shard_tree::level_of(s, g_.shards)) + place;
    if (!first) load_sums(t_, sums, kNr);
    else if (g_.start) load_rows(t_, from(g_.start + at, g_.ldo, m, n, stored), m, stored);
    else zero_sums(t_);
    add_products(t_, m, kc, {rows.left + r * kc, kTileWords, kMr * kTileWords}, b, [] {});
    const int added = last ? addends(g_, s, level(0) + place, level(1) - level(0), at, list) : 0;
    float* c = out ? g_.out + at : sums;
    const int64_t ld = out ? g_.ldo : kNr;
    if (added == 0 && (!out || (m == kMr && n == kNr))) return store_sums(t_, c, ld);
    store_sums(t_, stored, kNr);
    add_all(list, added, stored, kNr, c, ld, m, n);
  }

  const GradBlock& g_;
  const Block at_;
  Tiles t_;
  // Packed x, packed panels of dy, then `levels` blocks of tiles, panel after panel.
  float *left_, *right_, *waiting_;
};

inline int64_t tile_grad_scratch(int64_t m, int64_t n, int shards) {
  const int64_t left = left_floats(m);
  m = tiles(at_most(m, kTileGradM));
  n = at_most(panels(n), kPanelsAtOnce);
  return 16 + left + kPanelsAtOnce * kKc * kNr + shard_tree::levels(shards) * m * n * kTile;
}

inline void tile_weight_gradient(const GradBlock& g) {
  [[maybe_unused]] const TileSession session;
  // Use fewer columns at a time if packed x can then be kept, but not so few that dy is packed too often.
  constexpr int64_t kLeast = 2 * kMr;
  const int64_t all = TileGradient::all_words(g);
  const int64_t fitting = all ? left_floats(g.m) / all / kMr * kMr : g.m;
  const int64_t step = fitting >= kLeast ? at_most(fitting, kTileGradM) : kTileGradM;
  for (int64_t j = 0; j < g.n; j += kTileGradN)
    for (int64_t r = 0; r < g.m; r += step)
      TileGradient(g, {r, j, at_most(step, g.m - r), at_most(kTileGradN, g.n - j)}).run();
}

}  // namespace
}  // namespace mudd::MUDD_ISA
