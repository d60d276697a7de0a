// C = A B: blocks of A copied beside each other (no power-of-two strides, few pages), a panel of B in L1 while the
// tiles of A walk past it, partial sums over k in a compact buffer. Built per level.
#pragma once

#include "mudd/base/simd/activations.h"
#include "mudd/base/simd/rows.h"
#include "mudd/ops/gemm/gemm.h"
#include "mudd/ops/gemm/micro-inl.h"

namespace mudd::MUDD_ISA {
namespace {

constexpr int64_t kMc = 96, kNc = 256;  // rows and columns of a cache block
constexpr int64_t kLeftStride = kKc + 16;
static_assert(kMc % kMr == 0 && kNc % kNr == 0);

constexpr MicroTable<kLeftStride, 1> kByRows;

inline int64_t at_most(int64_t a, int64_t b) { return a < b ? a : b; }

// Calls body(row, column, lanes) over the vectors of a tile.
template <class Body>
inline void over_tile(int rows, int cols, Body body) {
  for (int r = 0; r < rows; ++r)
    for (int j = 0; j < cols; j += kLanes) body(r, j, cols - j < kLanes ? cols - j : kLanes);
}

// c = activation(gate) (tile + bias) row_scale + residual.
void finish_gated_tile(const GemmBlock& g, const float* tile, int64_t r0, int64_t j0, int rows, int cols) {
  const Epilogue& e = g.epilogue;
  with_activation(e.activation, [&](auto tag) {
    over_tile(rows, cols, [&](int r, int j, int n) {
      Vec v = Vec::load(tile + r * kNr + j);
      if (e.bias) v = v + load(e.bias + j0 + j, n);
      if (e.pre_activation) store(e.pre_activation + (r0 + r) * e.pre_stride + j0 + j, v, n);
      v = activate<decltype(tag)::kind>(load(e.gate + (r0 + r) * e.gate_stride + j0 + j, n)) * v;
      if (e.row_scale) v = v * Vec::set1(e.row_scale[r0 + r]);
      if (e.residual) v = v + load(e.residual + (r0 + r) * e.residual_stride + j0 + j, n);
      store(g.c + (r0 + r) * g.ldc + j0 + j, v, n);
    });
  });
}

// c = activation(tile + bias) + residual at rows r0.., columns j0.. of the block.
void finish_tile(const GemmBlock& g, const float* tile, int64_t r0, int64_t j0, int rows, int cols) {
  const Epilogue& e = g.epilogue;
  if (e.gate) return finish_gated_tile(g, tile, r0, j0, rows, cols);
  with_activation(e.activation, [&](auto tag) {
    over_tile(rows, cols, [&](int r, int j, int n) {
      Vec v = Vec::load(tile + r * kNr + j);
      if (e.bias) v = v + load(e.bias + j0 + j, n);
      if (e.pre_activation) store(e.pre_activation + (r0 + r) * e.pre_stride + j0 + j, v, n);
      v = activate<decltype(tag)::kind>(v);
      if (e.residual) v = v + load(e.residual + (r0 + r) * e.residual_stride + j0 + j, n);
      store(g.c + (r0 + r) * g.ldc + j0 + j, v, n);
    });
  });
}

// A cache block: rows [r0, r0 + m), columns [j0, j0 + n) of g, m <= kMc, n <= kNc.
struct Block {
  int64_t r0, j0, m, n;
};

// While panel `panel` and the tile at row r are at work: fetches this tile's share of the next panel of B and of
// `next`, the rows of A that are copied next (kc columns of them from `next`; null: none).
MUDD_INLINE void fetch_next(const GemmBlock& g, const Block& at, int64_t kc, int64_t j, int64_t r, int64_t rows,
                            const float* b, const float* next) {
  if (j + kNr < at.n) {
    const int64_t share = (kc * kNr * kMr / at.m + 15) / 16 * 16, from = r / kMr * share;
    fetch_ahead(b + g.k * kNr + from, at_most(share, kc * kNr - from));
  }
  if (!next) return;
  const int64_t from = kc * j / at.n / 16 * 16, to = kc * (j + kNr) / at.n;
  for (int64_t i = 0; i < rows; ++i) fetch_ahead(next + (r + i) * g.lda + from, to - from);
}

// The start of chains that go on from c: c itself, or for a partial panel a copy of full width.
Ends from(const float* c, int64_t ldc, int rows, int cols, float* tile) {
  if (cols == kNr) return {.start = c, .start_stride = ldc};
  over_tile(rows, cols, [&](int i, int v, int l) { load(c + i * ldc + v, l).store(tile + i * kNr + v); });
  return {.start = tile, .start_stride = kNr};
}

inline const float* row_of(const GemmBlock& g, int64_t r) {
  return g.a + (g.a_rows ? static_cast<int64_t>(g.a_rows[r]) : r) * g.lda;
}

void cache_block(const GemmBlock& g, const Block& at, const float* next_rows) {
  alignas(64) float left[kMc * kLeftStride], partial[kMc * kNc], tile[kMr * kNr];
  const Epilogue& e = g.epilogue;
  const bool sum_only = !e.bias && !e.pre_activation && e.activation == Activation::none && !e.gate;
  int64_t k0 = 0;
  do {  // at least once: k = 0 still has an epilogue
    const int64_t kc = at_most(kKc, g.k - k0);
    const bool first = k0 == 0, last = k0 + kc == g.k;
    for (int64_t r = 0; r < at.m; ++r)
      __builtin_memcpy(left + r * kLeftStride, row_of(g, at.r0 + r) + k0, static_cast<size_t>(kc) * sizeof(float));
    const float* next = last ? next_rows : g.a_rows ? nullptr : row_of(g, at.r0) + k0 + kc;
    for (int64_t j = 0; j < at.n; j += kNr) {
      const float* b = g.b + (at.j0 + j) * g.k + k0 * kNr;
      const int cols = static_cast<int>(at_most(kNr, at.n - j));
      for (int64_t r = 0; r < at.m; r += kMr) {
        const int rows = static_cast<int>(at_most(kMr, at.m - r));
        fetch_next(g, at, kc, j, r, rows, b, next);
        float *c = g.c + (at.r0 + r) * g.ldc + at.j0 + j, *sums = partial + r * kNc + j;
        Ends ends{.start = sums, .start_stride = kNc};
        if (first) ends = g.accumulate ? from(c, g.ldc, rows, cols, tile) : Ends{};
        const bool direct = last && sum_only && cols == kNr;
        ends.c = direct ? c : last ? tile : sums;
        ends.ldc = direct ? g.ldc : last ? kNr : kNc;
        const Addend residual{e.residual ? e.residual + (at.r0 + r) * e.residual_stride + at.j0 + j : nullptr,
                              e.residual_stride};
        ends.addends = &residual;
        ends.count = direct && e.residual;
        kByRows.of[rows - 1](kc, left + r * kLeftStride, b, ends);
        if (last && !direct) finish_tile(g, tile, at.r0 + r, at.j0 + j, rows, cols);
      }
    }
    k0 += kc;
  } while (k0 < g.k);
}

// m = 1: panels stream past the row at memory speed.
void one_row(const GemmBlock& g) {
  constexpr int64_t kPanels = 4;
  alignas(64) float tile[kPanels * kNr];
  for (int64_t j = 0; j < g.n; j += kPanels * kNr) {
    const int64_t cols = at_most(kPanels * kNr, g.n - j);
    if (g.accumulate)
      for (int64_t v = 0; v < cols; ++v) tile[v] = g.c[j + v];
    const float *b = g.b + j * g.k, *start = g.accumulate ? tile : nullptr;
    if (cols > (kPanels - 1) * kNr) {
      vector_panels(std::make_index_sequence<kPanels>(), g.k, row_of(g, 0), b, g.k * kNr, start, tile);
    } else {
      for (int64_t p = 0; p * kNr < cols; ++p)
        vector_panels(std::make_index_sequence<1>(), g.k, row_of(g, 0), b + p * kNr * g.k, 0,
                      start ? start + p * kNr : nullptr, tile + p * kNr);
    }
    finish_tile(g, tile, 0, j, 1, static_cast<int>(cols));
  }
}

void multiply(const GemmBlock& g) {
  if (g.m == 1) return one_row(g);
  for (int64_t j = 0; j < g.n; j += kNc)
    for (int64_t r = 0; r < g.m; r += kMc) {
      const Block at{r, j, at_most(kMc, g.m - r), at_most(kNc, g.n - j)};
      const bool more = r + 2 * kMc <= g.m;  // a whole block of rows follows
      cache_block(g, at, g.a_rows ? nullptr : more ? g.a + (r + kMc) * g.lda : g.next_a);
    }
}

}  // namespace
}  // namespace mudd::MUDD_ISA
