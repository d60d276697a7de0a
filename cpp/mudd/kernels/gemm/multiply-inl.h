// C = A B: a panel of B stays in L1 while the tiles of A pass it; partial sums over k are in a compact buffer.
// Rows of A are read in place, or copied if the kernel needs another format. Built per level.
#pragma once

#include "mudd/base/simd/activations.h"
#include "mudd/base/simd/rows.h"
#include "mudd/kernels/gemm/chains-inl.h"
#include "mudd/kernels/gemm/gemm.h"

namespace mudd::MUDD_ISA {
namespace {

// Rows and columns of a cache block. In double, the columns of the portable level take 128 KiB.
#if defined(MUDD_CHAINS)
constexpr int64_t kMc = 192, kNc = 256;
#else
constexpr int64_t kMc = 96, kNc = 256;
#endif
static_assert(kMc % kMr == 0 && kNc % kNr == 0);

// Call body(row, column, lanes) for the vectors of a tile.
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
      if (e.pre_activation) store(e.pre_activation, (r0 + r) * e.pre_stride + j0 + j, v, n);
      v = activate<decltype(tag)::kind>(load(e.gate, (r0 + r) * e.gate_stride + j0 + j, n)) * v;
      if (e.row_scale) v = v * Vec::set1(e.row_scale[r0 + r]);
      if (e.residual) v = v + load(e.residual, (r0 + r) * e.residual_stride + j0 + j, n);
      store(g.c, (r0 + r) * g.ldc + j0 + j, v, n);
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
      if (e.rounds_pre) v = round_bf16(v);
      if (e.pre_activation) store(e.pre_activation, (r0 + r) * e.pre_stride + j0 + j, v, n);
      v = activate<decltype(tag)::kind>(v);
      if (e.residual) v = v + load(e.residual, (r0 + r) * e.residual_stride + j0 + j, n);
      store(g.c, (r0 + r) * g.ldc + j0 + j, v, n);
    });
  });
}

// A cache block: rows [r0, r0 + m), columns [j0, j0 + n) of g, m <= kMc, n <= kNc.
struct Block {
  int64_t r0, j0, m, n;
};

// Return the start of chains that continue from c: c itself, or for a partial panel or bf16 a copy of full
// width.
Addend from(ConstCells c, int64_t ldc, int rows, int cols, float* tile) {
  if (cols == kNr && c.type == DType::f32) return {c.f32(), ldc};
  over_tile(rows, cols, [&](int i, int v, int l) { load(c, i * ldc + v, l).store(tile + i * kNr + v); });
  return {tile, kNr};
}

// Return the start of the chains of the tile at row r and column j; a null address: from 0.
inline Addend chain_start(const GemmBlock& g, int64_t r, int64_t j, int rows, int cols, float* tile) {
  if (g.start) return {g.start + r * g.start_stride + j, g.start_stride};
  return g.accumulate ? from(g.c + (r * g.ldc + j), g.ldc, rows, cols, tile) : Addend{};
}

inline ConstCells row_of(const GemmBlock& g, int64_t r) {
  return g.a + (g.a_rows ? static_cast<int64_t>(g.a_rows[r]) : r) * g.lda;
}

// Store c = tile, rounded to bf16 like the micro-kernels.
template <class Step>
void narrow_tile(const GemmBlock& g, const float* tile, int64_t r0, int64_t j0, int rows, int cols) {
  bf16 row[kNr];
  for (int r = 0; r < rows; ++r)
    for (int j = 0; j < cols; j += kNr) {
      Step::narrow(row, FmaStep::read(tile + r * kNr + j));
      __builtin_memcpy((g.c + ((r0 + r) * g.ldc + j0 + j)).data, row,
                       static_cast<size_t>(at_most(cols - j, kNr)) * sizeof(bf16));
    }
}

// Return true if C is the plain sum (and the residual).
inline bool sum_only(const Epilogue& e) {
  return !e.bias && !e.pre_activation && e.activation == Activation::none && !e.gate;
}

// Return rows of A from element k0 in the format of the tiles: in place, or copied to `left`.
template <class Unit>
const float* left_rows(const GemmBlock& g, const Block& at, bool in_place, int64_t k0, int64_t numbers, int64_t kc,
                       float* left) {
  if (in_place) return static_cast<const float*>((row_of(g, at.r0) + k0).data);
  for (int64_t r = 0; r < at.m; ++r)
    Unit::copy_row(row_of(g, at.r0 + r) + k0, numbers, kc, left + r * kLeftStride);
  return left;
}

template <class Unit>
void cache_block(const GemmBlock& g, const Block& at, ConstCells next_rows) {
  using Step = typename Unit::Step;
  constexpr int64_t kPer = Unit::Packed::kPer, kRow = Step::kRow;
  alignas(64) float left[kMc * kLeftStride], partial[kMc * kNc], tile[kMr * kNr];
  const int64_t depth = words<Unit>(g.k), panel = depth * kRow;
  const Epilogue& e = g.epilogue;
  const bool whole = sum_only(e) && g.c.type == DType::f32 && e.residual.type == DType::f32;
  const bool half = sum_only(e) && g.c.type == DType::bf16 && !e.residual;
  const bool in_place = !g.a_rows && Unit::in_place(g.a, g.lda, g.k);
  const int64_t a_step = in_place ? g.lda / kPer : kLeftStride;
  Chains<Unit, kNc / kNr> chains;
  const bool rows_first = chains.kUsed || (kRowsFirst && panels(at.n) * panel * 4 <= kStaysInL2);
  int64_t w0 = 0;
  do {  // at least once: k = 0 still has an epilogue
    const int64_t kc = at_most(kDepth, depth - w0), k0 = w0 * kPer, numbers = at_most(kc * kPer, g.k - k0);
    const bool first = w0 == 0, last = w0 + kc == depth;
    const float* a = left_rows<Unit>(g, at, in_place, k0, numbers, kc, left);
    const ConstCells next = last ? next_rows : g.a_rows ? ConstCells() : row_of(g, at.r0) + k0 + numbers;
    RowsAhead rows_ahead;  // two pieces a tile if nothing of B is prefetched
    const int64_t pieces = tiles(at.m) * panels(at.n) * (rows_first ? 2 : 1);
    if (next) rows_ahead = {next, g.lda, nullptr, at.m, numbers, pieces, kc};
    const Shares of_panel(whole_lines(kc * kRow * 4 * kMr / at.m), kc);  // of the next panel, for each tile
    const auto tile_at = [&](int64_t r, int64_t j, const float* b, const float* ahead) {
      const int rows = static_cast<int>(at_most(kMr, at.m - r)), cols = static_cast<int>(at_most(kNr, at.n - j));
      const Cells c = g.c + ((at.r0 + r) * g.ldc + at.j0 + j);
      float* sums = partial + r * kNc + j;
      Addend start{sums, kNc};
      if (first) start = chain_start(g, at.r0 + r, at.j0 + j, rows, cols, tile);
      int64_t rest = kc;
      if constexpr (chains.kUsed) rest = chains.sum(rows, j / kNr, kc, &start) ? 0 : kc;
      const bool direct = last && (whole || (half && Step::kNarrows)) && cols == kNr;
      const Addend residual{e.residual ? e.residual.f32() + (at.r0 + r) * e.residual_stride + at.j0 + j : nullptr,
                            e.residual_stride};
      const Ends ends{.start = start,
                      .addends = &residual,
                      .count = direct && whole && e.residual,
                      .c = !last             ? sums
                           : direct && whole ? c.f32()
                                             : tile,
                      .ldc = !last    ? kNc
                             : direct ? g.ldc
                                      : kNr,
                      .half = direct && half ? c.b16() : nullptr,
                      .fetch = {rows_first ? rows_ahead.piece()
                                : ahead    ? of_panel.of(ahead, r / kMr)
                                           : Stream(),
                                rows_ahead.piece()}};
      Unit::by_rows(rows, rest, a + r * a_step, a_step, b, ends);
      if (!last || direct) return;
      if (half) narrow_tile<Step>(g, tile, at.r0 + r, at.j0 + j, rows, cols);
      else finish_tile(g, tile, at.r0 + r, at.j0 + j, rows, cols);
    };
    const float* b = static_cast<const float*>(g.b) + at.j0 / kNr * panel + w0 * kRow;
    if constexpr (chains.kUsed)
      for (int64_t p = 0; p < panels(at.n); ++p) chains.read_panel(p, b + p * panel, kc);
    if (rows_first)
      for (int64_t r = 0; r < at.m; r += kMr) {
        if constexpr (chains.kUsed)
          chains.read_rows(static_cast<int>(at_most(kMr, at.m - r)), a + r * a_step, a_step, kc);
        for (int64_t j = 0; j < at.n; j += kNr) tile_at(r, j, b + j / kNr * panel, nullptr);
      }
    else
      for (int64_t j = 0; j < at.n; j += kNr, b += panel)
        for (int64_t r = 0; r < at.m; r += kMr)
          tile_at(r, j, b, g.fetch_b && j + kNr < at.n ? b + panel : nullptr);
    w0 += kc;
  } while (w0 < depth);
}

// m = 1: stream panels at memory speed. The row is copied in pieces unless it can be read in place.
template <class Unit>
void one_row(const GemmBlock& g) {
  using Step = typename Unit::Step;
  constexpr int64_t kPanels = 4, kPer = Unit::Packed::kPer, kRow = Step::kRow;
  alignas(64) float tile[kPanels * kNr], piece[kLeftStride];
  const bool half = sum_only(g.epilogue) && g.c.type == DType::bf16 && !g.epilogue.residual;
  const bool as_is = Unit::kPacked == DType::f32 && g.a.type == DType::f32;
  const int64_t depth = words<Unit>(g.k), most = as_is ? depth : kKc;
  for (int64_t j = 0; j < g.n; j += kPanels * kNr) {
    const int64_t cols = at_most(kPanels * kNr, g.n - j);
    if (g.start) __builtin_memcpy(tile, g.start + j, static_cast<size_t>(cols) * sizeof(float));
    else if (g.accumulate) over_row(cols, [&](int64_t v, int n) { load(g.c, j + v, n).store(tile + v); });
    int64_t w0 = 0;
    do {
      const int64_t kc = at_most(most, depth - w0), k0 = w0 * kPer;
      if (!as_is) Unit::copy_row(row_of(g, 0) + k0, at_most(kc * kPer, g.k - k0), kc, piece);
      const float *a = as_is ? row_of(g, 0).f32() : piece,
                  *start = g.start || g.accumulate || w0 > 0 ? tile : nullptr;
      const float* b = static_cast<const float*>(g.b) + j / kNr * depth * kRow + w0 * kRow;
      if (cols > (kPanels - 1) * kNr) {
        vector_panels<Step>(std::make_index_sequence<kPanels>(), kc, a, b, depth * kRow, start, tile);
      } else {
        for (int64_t p = 0; p * kNr < cols; ++p)
          vector_panels<Step>(std::make_index_sequence<1>(), kc, a, b + p * kRow * depth, 0,
                              start ? start + p * kNr : nullptr, tile + p * kNr);
      }
      w0 += kc;
    } while (w0 < depth);
    if (half) narrow_tile<Step>(g, tile, 0, j, 1, static_cast<int>(cols));
    else finish_tile(g, tile, 0, j, 1, static_cast<int>(cols));
  }
}

template <class Unit>
void multiply(const GemmBlock& g) {
  if (g.m == 1) return one_row<Unit>(g);
  for (int64_t j = 0; j < g.n; j += kNc)
    for (int64_t r = 0; r < g.m; r += kMc) {
      const Block at{r, j, at_most(kMc, g.m - r), at_most(kNc, g.n - j)};
      const bool more = r + 2 * kMc <= g.m;  // a whole block of rows follows
      cache_block<Unit>(g, at, g.a_rows ? ConstCells() : more ? g.a + (r + kMc) * g.lda : g.next_a);
    }
}

}  // namespace
}  // namespace mudd::MUDD_ISA
