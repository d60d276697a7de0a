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

// Run the same for a matrix [rows, cols] with the row and column moments r and c in place of v (factors.h).
inline void adamw_factored(int64_t rows, int64_t cols, double* w, double* m, double* r, double* c, const double* g,
                           double lr, double beta1, double beta2, double eps, double decay, int64_t t,
                           double eps_root = 0) {
  const double first = 1 - std::pow(beta1, t), second = 1 - std::pow(beta2, t);
  double mean = 0;
  for (int64_t i = 0; i < rows; ++i) {
    double squares = 0;
    for (int64_t j = 0; j < cols; ++j) squares += g[i * cols + j] * g[i * cols + j];
    r[i] = beta2 * r[i] + (1 - beta2) * squares / static_cast<double>(cols);
    mean += r[i] / static_cast<double>(rows);
  }
  for (int64_t j = 0; j < cols; ++j) {
    double squares = 0;
    for (int64_t i = 0; i < rows; ++i) squares += g[i * cols + j] * g[i * cols + j];
    c[j] = beta2 * c[j] + (1 - beta2) * squares / static_cast<double>(rows);
  }
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < cols; ++j) {
      const int64_t at = i * cols + j;
      const double v = mean == 0 ? 0 : r[i] * c[j] / mean;
      m[at] = beta1 * m[at] + (1 - beta1) * g[at];
      w[at] = w[at] - lr * (m[at] / first) / (std::sqrt(v / second + eps_root) + eps) - decay * w[at];
    }
}

}  // namespace mudd::reference
