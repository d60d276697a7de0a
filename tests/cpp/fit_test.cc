#include "mudd/base/fit.h"

#include <cmath>
#include <vector>

#include "compare.h"
#include "mudd/base/check.h"

using namespace mudd;

TEST_CASE("a line through points on it, and its error through points beside it") {
  const std::vector<double> x = {5, 6, 7, 8}, y = {1.5, 2.0, 2.5, 3.0};
  const Line exact = fit_line(x, y);
  CHECK(exact.slope == doctest::Approx(0.5));
  CHECK(exact.intercept == doctest::Approx(-1.0));
  CHECK(exact.slope_error < 1e-12);
  // By hand: mean 2, slope sum (x - 2)(y - 7/3) / 2 = 1/2, residuals 1/6 (1, -2, 1), error sqrt(1/6 / 2).
  const Line beside = fit_line(std::vector<double>{1, 2, 3}, std::vector<double>{2, 2, 3});
  CHECK(beside.slope == doctest::Approx(0.5));
  CHECK(beside.intercept == doctest::Approx(4.0 / 3));
  CHECK(beside.slope_error == doctest::Approx(std::sqrt(1.0 / 12)));
}

TEST_CASE("what cannot be fitted is refused") {
  const std::vector<double> one = {1}, two = {1, 2}, same = {3, 3}, bad = {1, NAN};
  CHECK_THROWS_AS(fit_line(one, one), Error);
  CHECK_THROWS_AS(fit_line(two, one), Error);
  CHECK_THROWS_AS(fit_line(same, two), Error);
  CHECK_THROWS_AS(fit_line(two, bad), Error);
}
