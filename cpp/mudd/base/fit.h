// Least squares for reports: small dense maths by Eigen, never inside kernels.
#pragma once

#include <span>

namespace mudd {

struct Line {
  double slope = 0, intercept = 0;
  double slope_error = 0;  // standard error of the slope; 0 for fewer than three points
};

// Return the least-squares line through the points (x[i], y[i]). Error for fewer than two points, for points
// that are not finite, or for all x equal.
Line fit_line(std::span<const double> x, std::span<const double> y);

}  // namespace mudd
