// What a kernel row multiplies with: how numbers lie in packed memory, and how the tiles see and sum them. Built
// per level. A Unit gives
//   Packed, kPacked      how packed B is written, and its type
//   Working              how blocks of x and dy are written that the tiles read at once
//   kDepthUnit           packed K is a multiple of it
//   Step                 the multiplication of the micro-kernels
//   Session              what a thread holds while it runs loops of tiles
//   copy_row             a row of A as the tiles see it
//   by_rows, by_columns  a register tile: A lies row after row, kLeftStride words apart, or is a tile of pack_left
#pragma once

#include "mudd/ops/gemm/micro-inl.h"

namespace mudd::MUDD_ISA {
namespace {

// A vector of numbers rounded to bf16, n from p on, zeros behind them.
MUDD_INLINE Vec as_bf16(const float* p, int n) { return round_bf16(load(p, n)); }
MUDD_INLINE Vec as_bf16(const bf16* p, int n) { return load(p, n); }

// Ways to write a vector into packed memory: n numbers from column `at` on of kPer rows, which lie together.
struct AsF32 {
  using Number = float;
  static constexpr int kPer = 1;
  template <class From>
  static MUDD_INLINE void put(float* to, const From* const* rows, int64_t at, int n) {
    load(rows[0] + at, n).store(to);
  }
};
struct AsRounded {  // bf16 numbers widened again
  using Number = float;
  static constexpr int kPer = 1;
  template <class From>
  static MUDD_INLINE void put(float* to, const From* const* rows, int64_t at, int n) {
    as_bf16(rows[0] + at, n).store(to);
  }
};
struct AsBf16 {
  using Number = bf16;
  static constexpr int kPer = 1;
  template <class From>
  static MUDD_INLINE void put(bf16* to, const From* const* rows, int64_t at, int n) {
    store(to, load(rows[0] + at, n));
  }
};

template <class Body>
MUDD_INLINE void with_cells(ConstCells c, Body body) {
  if (c.type == DType::bf16) body(c.b16());
  else body(c.f32());
}

struct NoSession {};

// Register tiles out of vectors.
template <class Step>
struct VectorTiles {
  static constexpr bool kVectors = true;
  static constexpr MicroTable<Step, kLeftStride, 1> kByRows{};
  static constexpr MicroTable<Step, 1, kMr> kByColumns{};

  static MUDD_INLINE void by_rows(int rows, int64_t kc, const float* a, const float* b, const Ends& ends) {
    kByRows.of[rows - 1](kc, a, b, ends);
  }
  static MUDD_INLINE void by_columns(int rows, int64_t kc, const float* a, const float* b, const Ends& ends) {
    kByColumns.of[rows - 1](kc, a, b, ends);
  }
};

struct F32Unit : VectorTiles<FmaStep> {
  using Packed = AsF32;
  using Working = AsF32;
  using Step = FmaStep;
  using Session = NoSession;
  static constexpr DType kPacked = DType::f32;
  static constexpr int64_t kDepthUnit = 1;

  static void copy_row(ConstCells from, int64_t numbers, int64_t, float* to) {
    if (from.type == DType::f32) __builtin_memcpy(to, from.data, static_cast<size_t>(numbers) * sizeof(float));
    else over_row(numbers, [&](int64_t i, int n) { load(from.b16() + i, n).store(to + i); });
  }
};

// bf16 without bf16 units: packed numbers are widened into L1 a panel at a time, for all tiles that walk past it.
struct WidenUnit : VectorTiles<FmaStep> {
  using Packed = AsBf16;
  using Working = AsRounded;
  using Step = FmaStep;
  using Session = NoSession;
  static constexpr DType kPacked = DType::bf16;
  static constexpr int64_t kDepthUnit = 1;

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
