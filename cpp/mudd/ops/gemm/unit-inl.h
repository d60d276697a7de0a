// What a kernel row multiplies with: how numbers lie in packed B, and how the tiles see them. Built per level.
#pragma once

#include "mudd/ops/gemm/micro-inl.h"

namespace mudd::MUDD_ISA {
namespace {

// Ways to write a vector of numbers into packed memory.
struct AsF32 {
  using Number = float;
  static MUDD_INLINE void put(float* to, Vec v) { v.store(to); }
};
struct AsRounded {  // bf16 numbers widened again
  using Number = float;
  static MUDD_INLINE void put(float* to, Vec v) { round_bf16(v).store(to); }
};
struct AsBf16 {
  using Number = bf16;
  static MUDD_INLINE void put(bf16* to, Vec v) { store(to, v); }
};

struct F32Unit {
  using Packed = AsF32;   // packed B
  using Working = AsF32;  // what the tiles read
  static constexpr DType kPacked = DType::f32;
};

// bf16 without bf16 units: packed numbers are widened into L1 a panel at a time, for all tiles that walk past it.
struct WidenUnit {
  using Packed = AsBf16;
  using Working = AsRounded;
  static constexpr DType kPacked = DType::bf16;
};

template <class As, class Body>
MUDD_INLINE void with_cells(ConstCells c, Body body) {
  // What is bf16 already needs no rounding.
  if (c.type == DType::bf16) body(c.b16(), AsF32());
  else body(c.f32(), As());
}

}  // namespace
}  // namespace mudd::MUDD_ISA
