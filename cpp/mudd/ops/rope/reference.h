// rope as the formula reads, for any number type; cos and sin come from the C library.
#pragma once

#include <cmath>
#include <cstdint>

namespace mudd::reference {

// x, y: [rows, heads, dim] without gaps; positions[rows].
template <class N>
void rope(int64_t rows, int64_t heads, int64_t dim, int64_t pairs, double base, const int32_t* positions,
          const N* x, N* y) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t h = 0; h < heads; ++h) {
      const N* xh = x + (r * heads + h) * dim;
      N* yh = y + (r * heads + h) * dim;
      for (int64_t d = 0; d < dim; ++d) yh[d] = xh[d];
      for (int64_t i = 0; i < pairs; ++i) {
        const double angle = positions[r] * std::pow(base, -static_cast<double>(i) / static_cast<double>(pairs));
        yh[i] = xh[i] * N(std::cos(angle)) - xh[i + pairs] * N(std::sin(angle));
        yh[i + pairs] = xh[i + pairs] * N(std::cos(angle)) + xh[i] * N(std::sin(angle));
      }
    }
}

}  // namespace mudd::reference
