// rope: rotary positions (Su et al. 2021), "half" layout (docs/maths/transformer.md, 2.2).
//
// The first `rotary` = fraction * hd dims of each head form rotary/2 pairs (x1[i], x2[i]) = (x[i], x[i +
// rotary/2]); with angle = position * base^(-2i/rotary):
//   y1 = x1 cos - x2 sin,   y2 = x2 cos + x1 sin;   the other dims pass through.
//
// Inputs: x [B, T, H*hd] or [B, T, H, hd] fp32 (any row stride), positions i32 [B, T] (optional: cache_length +
// t). Output: y as x; it may take over x's memory. Saves nothing: backward rotates dy by the negative angle.
// Positions are in [0, max_positions); other positions are an Error.
#pragma once

#include <cstdint>

#include "mudd/base/kernel_table.h"

namespace mudd {

// Rows [begin, end) of a value with H heads.
struct RopeBlock {
  int64_t begin = 0, end = 0;
  int64_t time = 1;  // T: row r is position first_position + r % T ...
  int64_t first_position = 0;
  const int32_t* positions = nullptr;  // ... or positions[r] where given
  int64_t heads = 0, dim = 0, pairs = 0;
  const float* table = nullptr;  // [position][2][pairs]: cos, sin
  bool negative = false;         // rotate by the negative angle (backward)
  const float* x = nullptr;
  int64_t x_row = 0, x_head = 0;  // strides in elements
  float* y = nullptr;             // may be x
  int64_t y_row = 0, y_head = 0;
  bool accumulate = false;  // add to y
};

struct RopeKernels {
  void (*rotate)(const RopeBlock& block);
};

MUDD_DECLARE_KERNELS(RopeKernels, rope_f32)

std::span<const KernelRow<RopeKernels>> rope_rows();

// Fills table[positions][2][pairs] with cos and sin of p * base^(-i/pairs), computed in double (base/math.h).
void rope_table(int64_t positions, int64_t pairs, double base, float* table);

}  // namespace mudd
