#include "mudd/base/fit.h"

#include <Eigen/Dense>

#include "mudd/base/check.h"

namespace mudd {

Line fit_line(std::span<const double> x, std::span<const double> y) {
  const auto n = static_cast<Eigen::Index>(x.size());
  check(x.size() == y.size() && n >= 2, "fit_line", "x, y: expected equal lengths, 2 or more, got ", x.size(),
        " and ", y.size());
  const Eigen::Map<const Eigen::VectorXd> xs(x.data(), n), ys(y.data(), n);
  check(xs.allFinite() && ys.allFinite(), "fit_line", "x, y: expected finite numbers");
  check(xs.maxCoeff() > xs.minCoeff(), "fit_line", "x: expected at least two different numbers");
  Eigen::MatrixX2d design(n, 2);
  design.col(0) = xs.array() - xs.mean();  // centred: the two columns are orthogonal
  design.col(1).setOnes();
  const Eigen::Vector2d solution = design.colPivHouseholderQr().solve(ys);
  Line line;
  line.slope = solution(0);
  line.intercept = solution(1) - solution(0) * xs.mean();
  if (n > 2) {
    const double rest = (ys - design * solution).squaredNorm() / static_cast<double>(n - 2);
    line.slope_error = std::sqrt(rest / design.col(0).squaredNorm());
  }
  return line;
}

}  // namespace mudd
