// The element formats of a kernel row: how packed memory is laid out, and how tiles read and sum it. Built per
// level. A Unit has
//   Packed, kPacked      the writer of packed rows of B, and their type
//   Left                 the writer of blocks of x for weight gradients
//   kDepthUnit           packed K is a multiple of it
//   Step                 the reads and multiply-adds of the micro-kernels (micro-inl.h)
//   in_place             whether tiles can read rows of A in place
//   copy_row             a row of A in the format of the tiles
// and for vector tiles (AMX has separate loops: tile_row-inl.h)
//   by_rows, by_columns  a register tile: A has its rows row_step floats apart, or is a tile of pack_left
#pragma once

#include "mudd/kernels/gemm/micro-inl.h"

namespace mudd::MUDD_ISA {
namespace {

// Load n elements from p, rounded to bf16 values; the other lanes are zero.
MUDD_INLINE Vec as_bf16(const float* p, int n) { return round_bf16(load(p, n)); }
MUDD_INLINE Vec as_bf16(const bf16* p, int n) { return load(p, n); }

// Return the count of valid lanes of a vector if `left` elements are left, perhaps none.
MUDD_INLINE int lanes_left(int64_t left) {
  return static_cast<int>(left <= 0 ? 0 : left < kLanes ? left : kLanes);
}

// Writers of packed memory. put: write a vector of n elements from column `at` of kPer adjacent rows. panel:
// write kNr columns, of which `left` exist, in the format of Step::read.
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
struct AsRounded {  // bf16 values, as fp32
  static constexpr int kPer = 1;
  template <class From>
  static MUDD_INLINE void put(float* to, const From* const* rows, int64_t at, int n) {
    as_bf16(rows[0] + at, n).store(to);
  }
};
struct AsHalves {  // columns j (low) and kLanes + j (high) of a panel in 32 bits
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

// Register tiles of vectors.
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

// bf16 without bf16 instructions: two columns in 32 bits, which the micro-kernel converts by a shift and a
// mask.
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

// Return the depth of packed B for k, in 32-bit units.
template <class Unit>
constexpr int64_t words(int64_t k) {
  return (k + Unit::kDepthUnit - 1) / Unit::kDepthUnit * (Unit::kDepthUnit / Unit::Packed::kPer);
}

}  // namespace
}  // namespace mudd::MUDD_ISA
