// muon as a formula, in double.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace mudd::reference {

// Return X [rows, cols] after `steps` iterations of X = (a I + b A + c A A) X with A = X X^T, from U / max(|U|,
// 1e-7). The powers of A commute, so either side may be the shorter one.
inline std::vector<double> orthogonal(const std::vector<double>& u, int64_t rows, int64_t cols, int steps) {
  const auto times = [](const std::vector<double>& a, const std::vector<double>& b, int64_t m, int64_t k,
                        int64_t n) {
    std::vector<double> c(static_cast<size_t>(m * n));
    for (int64_t i = 0; i < m; ++i)
      for (int64_t p = 0; p < k; ++p)
        for (int64_t j = 0; j < n; ++j) c[i * n + j] += a[i * k + p] * b[p * n + j];
    return c;
  };
  double squares = 0;
  for (double v : u) squares += v * v;
  std::vector<double> x = u;
  for (double& v : x) v /= std::max(std::sqrt(squares), 1e-7);
  for (int s = 0; s < steps; ++s) {
    std::vector<double> t(x.size());
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < cols; ++c) t[c * rows + r] = x[r * cols + c];
    const std::vector<double> gram = times(x, t, rows, cols, rows);
    std::vector<double> p = times(gram, gram, rows, rows, rows);
    for (size_t i = 0; i < p.size(); ++i) p[i] = -4.775 * gram[i] + 2.0315 * p[i];
    for (int64_t i = 0; i < rows; ++i) p[i * rows + i] += 3.4445;
    x = times(p, x, rows, rows, cols);
  }
  return x;
}

// Run one update of W [rows, cols] with moment m and the summed gradient g; decay is the fraction of w to
// subtract.
inline void muon(int64_t rows, int64_t cols, std::vector<double>& w, std::vector<double>& m,
                 const std::vector<double>& g, double rate, double momentum, double decay, int steps) {
  std::vector<double> u(g.size());
  for (size_t i = 0; i < g.size(); ++i) {
    m[i] = momentum * m[i] + (1 - momentum) * g[i];
    u[i] = momentum * m[i] + (1 - momentum) * g[i];
  }
  const std::vector<double> x = orthogonal(u, rows, cols, steps);
  for (size_t i = 0; i < g.size(); ++i) w[i] = w[i] - decay * w[i] - rate * x[i];
}

}  // namespace mudd::reference
