// rope: rotary positions (Su et al. 2021), "half" layout (docs/maths/transformer.md, 2.2).
//
// The first `rotary` = fraction * hd dims of each head form rotary/2 pairs (x1[i], x2[i]) = (x[i], x[i +
// rotary/2]); with angle = position * base^(-2i/rotary):
//   y1 = x1 cos - x2 sin,   y2 = x2 cos + x1 sin;   the other dims pass through.
//
// Option scaling changes the frequencies theta_i = base^(-2i/rotary) for sequences longer than in the first
// training:
//   linear  theta / factor (Chen et al. 2023, arXiv 2306.15595)
//   llama3  by the wavelength 2 pi / theta: unchanged below original / high_freq, divided by factor above
//           original / low_freq, linear in 1 / wavelength between them (Llama 3.1, as transformers computes it)
//
// Inputs: x [B, T, H*hd] or [B, T, H, hd] fp32 (any row stride), positions i32 [B, T] (optional: cache_length +
// t). Output: y like x; it may share memory with x. Saves nothing: backward rotates dy by the negative angle.
// Positions are in [0, max_positions); other positions are an Error.
#pragma once

#include <compare>
#include <cstdint>

#include "mudd/base/kernel_table.h"

namespace mudd {

// Rows [begin, end) of a value with H heads.
struct RopeBlock {
  int64_t begin = 0, end = 0;
  int64_t time = 1;  // T: row r is position first_position + r % T ...
  int64_t first_position = 0;
  const int32_t* positions = nullptr;  // ... or positions[r] if not null
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

enum class RopeScaling : uint8_t { none, linear, llama3 };

// The parameters of a table's frequencies. original: positions of the first training.
struct RopeFrequencies {
  double base = 10000;
  RopeScaling scaling = RopeScaling::none;
  double factor = 1, low_freq = 1, high_freq = 4;
  int64_t original = 8192;

  auto operator<=>(const RopeFrequencies&) const = default;
};

// Compute table[positions][2][pairs] with cos and sin of p * theta_i, in double (base/math.h).
void rope_table(int64_t positions, int64_t pairs, const RopeFrequencies& f, float* table);

}  // namespace mudd
