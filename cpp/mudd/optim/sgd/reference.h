// sgd with Nesterov momentum as the formula reads, in double.
#pragma once

#include <cstdint>

namespace mudd::reference {

// One update of n elements with the summed gradient g; decay is the share of w taken away.
inline void sgd(int64_t n, double* w, double* m, const double* g, double lr, double momentum, double decay) {
  for (int64_t i = 0; i < n; ++i) {
    m[i] = momentum * m[i] + g[i];
    w[i] = w[i] - lr * (g[i] + momentum * m[i]) - decay * w[i];
  }
}

}  // namespace mudd::reference
