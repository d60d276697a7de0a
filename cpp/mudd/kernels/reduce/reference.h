// The sums as formulas, in double.
#pragma once

#include <cstdint>

namespace mudd::reference {

inline double squares(int64_t n, const float* const* planes, int n_planes) {
  double total = 0;
  for (int64_t i = 0; i < n; ++i) {
    double g = 0;
    for (int p = 0; p < n_planes; ++p) g += planes[p][i];
    total += g * g;
  }
  return total;
}

}  // namespace mudd::reference
