// row_adagrad as a formula, in double.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

namespace mudd::reference {

// Run update n (from 1) of w [rows, cols] with the summed gradient g. s, last [rows]: the sum of a row's mean
// squares, and the number of its last update. decay is the fraction of w to subtract in each update.
inline void row_adagrad(int64_t rows, int64_t cols, std::vector<double>& w, std::vector<double>& s,
                        std::vector<double>& last, const std::vector<double>& g, int64_t n, double lr,
                        double decay, double eps) {
  for (int64_t r = 0; r < rows; ++r) {
    double squares = 0;
    for (int64_t c = 0; c < cols; ++c) squares += g[r * cols + c] * g[r * cols + c];
    if (squares == 0) continue;
    s[r] += squares / static_cast<double>(cols);
    const double kept = std::pow(1 - decay, static_cast<double>(n) - last[r]);
    for (int64_t c = 0; c < cols; ++c) {
      double& x = w[r * cols + c];
      x = kept * x - lr * g[r * cols + c] / (std::sqrt(s[r]) + eps);
    }
    last[r] = static_cast<double>(n);
  }
}

}  // namespace mudd::reference
