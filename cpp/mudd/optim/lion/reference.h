// lion as a formula, in double.
#pragma once

#include <cstdint>

namespace mudd::reference {

// Run one update of n elements with the summed gradient g; decay is the fraction of w to subtract.
inline void lion(int64_t n, double* w, double* m, const double* g, double lr, double beta1, double beta2,
                 double decay) {
  for (int64_t i = 0; i < n; ++i) {
    const double d = beta1 * m[i] + (1 - beta1) * g[i];
    w[i] = w[i] - lr * ((d > 0) - (d < 0)) - decay * w[i];
    m[i] = beta2 * m[i] + (1 - beta2) * g[i];
  }
}

}  // namespace mudd::reference
