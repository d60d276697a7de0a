// rope as a formula, for any number type; cos and sin come from the C library.
#pragma once

#include <cmath>
#include <cstdint>

#include "mudd/ops/rope/rope.h"

namespace mudd::reference {

// Return the frequency of pair i in the form of transformers: by wavelengths.
inline double rope_frequency(int64_t i, int64_t pairs, const RopeFrequencies& f) {
  const double theta = std::pow(f.base, -static_cast<double>(i) / static_cast<double>(pairs));
  if (f.scaling == RopeScaling::linear) return theta / f.factor;
  const double wavelength = 2 * std::acos(-1.0) / theta, original = static_cast<double>(f.original);
  if (f.scaling == RopeScaling::none || wavelength < original / f.high_freq) return theta;
  if (wavelength > original / f.low_freq) return theta / f.factor;
  const double smooth = (original / wavelength - f.low_freq) / (f.high_freq - f.low_freq);
  return (1 - smooth) * theta / f.factor + smooth * theta;
}

// x, y: [rows, heads, dim], contiguous; positions[rows].
template <class N>
void rope(int64_t rows, int64_t heads, int64_t dim, int64_t pairs, const RopeFrequencies& f,
          const int32_t* positions, const N* x, N* y) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t h = 0; h < heads; ++h) {
      const N* xh = x + (r * heads + h) * dim;
      N* yh = y + (r * heads + h) * dim;
      for (int64_t d = 0; d < dim; ++d) yh[d] = xh[d];
      for (int64_t i = 0; i < pairs; ++i) {
        const double angle = positions[r] * rope_frequency(i, pairs, f);
        yh[i] = xh[i] * N(std::cos(angle)) - xh[i + pairs] * N(std::sin(angle));
        yh[i + pairs] = xh[i + pairs] * N(std::cos(angle)) + xh[i] * N(std::sin(angle));
      }
    }
}

}  // namespace mudd::reference
