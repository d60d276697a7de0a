// adamw as a formula, in double.
#pragma once

#include <cmath>
#include <cstdint>

namespace mudd::reference {

// Run one update t (from 1) of n elements with the summed gradient g; lr and decay as in UpdateParameter.
inline void adamw(int64_t n, double* w, double* m, double* v, const double* g, double lr, double beta1,
                  double beta2, double eps, double decay, int64_t t, double eps_root = 0) {
  const double first = 1 - std::pow(beta1, t), second = 1 - std::pow(beta2, t);
  for (int64_t i = 0; i < n; ++i) {
    m[i] = beta1 * m[i] + (1 - beta1) * g[i];
    v[i] = beta2 * v[i] + (1 - beta2) * g[i] * g[i];
    w[i] = w[i] - lr * (m[i] / first) / (std::sqrt(v[i] / second + eps_root) + eps) - decay * w[i];
  }
}

}  // namespace mudd::reference
