// What a kernel row multiplies with: how numbers lie in packed memory, and how the tiles see and sum them. Built
// per level. A Unit gives
//   Packed, kPacked      how packed rows of B are written, and their type
//   Left                 how blocks of x are written for weight gradients
//   kDepthUnit           packed K is a multiple of it
//   Step                 how the micro-kernels read and multiply (micro-inl.h)
//   in_place             whether the tiles see rows of A as they lie
//   copy_row             a row of A as the tiles see it
// and for the loops over tiles out of vectors (those of AMX have their own: tile_row-inl.h)
//   by_rows, by_columns  a register tile: A lies row after row, row_step words apart, or is a tile of pack_left
#pragma once

#include "mudd/kernels/gemm/micro-inl.h"

namespace mudd::MUDD_ISA {
namespace {

// A vector of numbers rounded to bf16, n from p on, zeros behind them.
MUDD_INLINE Vec as_bf16(const float* p, int n) { return round_bf16(load(p, n)); }
MUDD_INLINE Vec as_bf16(const bf16* p, int n) { return load(p, n); }

// Lanes of a vector of which `left` numbers are there, some or none.
MUDD_INLINE int lanes_left(int64_t left) {
  return static_cast<int>(left <= 0 ? 0 : left < kLanes ? left : kLanes);
}

// Ways to write numbers into packed words. put: a vector, n numbers from column `at` on of kPer rows, which lie
// together. panel: kNr columns, of which `left` are there, as Step::read reads them.
template <class As>
struct WholePanels {
  template <class From>
  static MUDD_INLINE void panel(float* to, const From* const* rows, int64_t at, int64_t left) {
    As::put(to, rows, at, lanes_left(left));
    As::put(to + kLanes, rows, at + kLanes, lanes_left(left - kLanes));
  }
};

struct AsF32 : WholePanels<AsF32> {
  static constexpr int kPer = 1;
  template <class From>
  static MUDD_INLINE void put(float* to, const From* const* rows, int64_t at, int n) {
    load(rows[0] + at, n).store(to);
  }
};
struct AsRounded {  // bf16 numbers widened again
  static constexpr int kPer = 1;
  template <class From>
  static MUDD_INLINE void put(float* to, const From* const* rows, int64_t at, int n) {
    as_bf16(rows[0] + at, n).store(to);
  }
};
struct AsHalves {  // words of columns j (low) and kLanes + j (high) of a panel
  static constexpr int kPer = 1;
  template <class From>
  static MUDD_INLINE void panel(float* to, const From* const* rows, int64_t at, int64_t left) {
    const Vec low = as_bf16(rows[0] + at, lanes_left(left));
    pairs(low, as_bf16(rows[0] + at + kLanes, lanes_left(left - kLanes))).store(to);
  }
};

template <class Body>
MUDD_INLINE void with_cells(ConstCells c, Body body) {
  if (c.type == DType::bf16) body(c.b16());
  else body(c.f32());
}

// Register tiles out of vectors.
template <class Step>
struct VectorTiles {
  static constexpr MicroTable<Step, 1, false> kByRows{};
  static constexpr MicroTable<Step, 1, Step::kNarrows> kHalfByRows{};
  static constexpr MicroTable<Step, kMr, false> kByColumns{};

  static MUDD_INLINE void by_rows(int rows, int64_t kc, const float* a, int64_t row_step, const float* b,
                                  const Ends& ends) {
    (ends.half ? kHalfByRows.of : kByRows.of)[rows - 1](kc, a, row_step, b, ends);
  }
  static MUDD_INLINE void by_columns(int rows, int64_t kc, const float* a, const float* b, const Ends& ends) {
    kByColumns.of[rows - 1](kc, a, 1, b, ends);
  }
};

struct F32Unit : VectorTiles<FmaStep> {
  using Packed = AsF32;
  using Left = AsF32;
  using Step = FmaStep;
  static constexpr DType kPacked = DType::f32;
  static constexpr int64_t kDepthUnit = 1;

  static bool in_place(ConstCells a, int64_t, int64_t) { return a.type == DType::f32; }
  static void copy_row(ConstCells from, int64_t numbers, int64_t, float* to) {
    if (from.type == DType::f32) __builtin_memcpy(to, from.data, static_cast<size_t>(numbers) * sizeof(float));
    else over_row(numbers, [&](int64_t i, int n) { load(from.b16() + i, n).store(to + i); });
  }
};

// bf16 without bf16 units: two columns in a word, which a shift and a mask widen in the micro-kernel.
struct HalvesStep : FmaStep {
  static constexpr int kRow = kLanes;
  static MUDD_INLINE Pair read(const float* b) {
    const Vec word = Vec::load(b);
    return {low_of(word), high_of(word)};
  }
};

struct WidenUnit : VectorTiles<HalvesStep> {
  using Packed = AsHalves;
  using Left = AsRounded;
  using Step = HalvesStep;
  static constexpr DType kPacked = DType::bf16;
  static constexpr int64_t kDepthUnit = 1;

  static bool in_place(ConstCells, int64_t, int64_t) { return false; }
  static void copy_row(ConstCells from, int64_t numbers, int64_t, float* to) {
    with_cells(from, [&](const auto* row) {
      over_row(numbers, [&](int64_t i, int n) { as_bf16(row + i, n).store(to + i); });
    });
  }
};

// Words of k: packed rows of B.
template <class Unit>
constexpr int64_t words(int64_t k) {
  return (k + Unit::kDepthUnit - 1) / Unit::kDepthUnit * (Unit::kDepthUnit / Unit::Packed::kPer);
}

}  // namespace
}  // namespace mudd::MUDD_ISA
