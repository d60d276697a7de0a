#include "mudd/base/principal.h"

#include <Eigen/Dense>
#include <cmath>

#include "mudd/base/check.h"

namespace mudd {
namespace {

using Rows = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Matrix = Eigen::MatrixXd;

// Singular values below this fraction of the largest one are rounding errors of the Gram matrix.
constexpr double kRounding = 1e-7;

}  // namespace

void principal_factors(const float* w, int64_t k, int64_t n, int64_t rank, double scale, float* a, float* b) {
  check(scale > 0 && std::isfinite(scale), "principal_factors", "scale: expected a number above 0, got ", scale);
  const Matrix whole = Eigen::Map<const Rows>(w, k, n).cast<double>();
  check(whole.allFinite(), "principal_factors", "w: expected finite numbers");
  const bool wide = k <= n;
  const Matrix gram = wide ? Matrix(whole * whole.transpose()) : Matrix(whole.transpose() * whole);
  const Eigen::SelfAdjointEigenSolver<Matrix> solver(gram);  // ascending
  const int64_t least = std::min(k, n), kept = std::min(rank, least);
  Matrix left = Matrix::Zero(k, rank), right = Matrix::Zero(rank, n);
  const double largest = std::sqrt(std::max(0.0, solver.eigenvalues()(least - 1)));
  for (int64_t i = 0; i < kept; ++i) {
    const double value = std::sqrt(std::max(0.0, solver.eigenvalues()(least - 1 - i)));
    if (value <= kRounding * largest) break;
    const Eigen::VectorXd one = solver.eigenvectors().col(least - 1 - i);
    const double root = std::sqrt(value / scale);
    if (wide) {
      left.col(i) = one * root;
      right.row(i) = (one.transpose() * whole) * (root / value);
    } else {
      left.col(i) = (whole * one) * (root / value);
      right.row(i) = one.transpose() * root;
    }
  }
  Eigen::Map<Rows>(a, k, rank) = left.cast<float>();
  Eigen::Map<Rows>(b, rank, n) = right.cast<float>();
}

}  // namespace mudd
