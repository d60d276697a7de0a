// sgd with momentum, by default Nesterov's, as a formula, in double.
#pragma once

#include <cstdint>

namespace mudd::reference {

// Run one update of n elements with the summed gradient g; decay is the fraction of w to subtract.
inline void sgd(int64_t n, double* w, double* m, const double* g, double lr, double momentum, double decay,
                bool nesterov = true) {
  for (int64_t i = 0; i < n; ++i) {
    m[i] = momentum * m[i] + g[i];
    w[i] = w[i] - lr * (nesterov ? g[i] + momentum * m[i] : m[i]) - decay * w[i];
  }
}

}  // namespace mudd::reference
