// Elementary functions in double against the C library's long double.
#include "mudd/base/math.h"

#include <cmath>

#include "compare.h"
#include "mudd/base/check.h"

using namespace mudd;
using namespace mudd::test;

namespace {

// |got - want| in units of the last place of a double near want.
double ulps(double got, long double want) {
  const double near = std::fabs(static_cast<double>(want));
  const double unit = std::nextafter(near, INFINITY) - near;
  return static_cast<double>(std::fabs(static_cast<long double>(got) - want) / unit);
}

double uniform(uint64_t i, double low, double high) {
  const double u = (number(11, i) + 1) / 2 + (number(12, i) + 1) * 0x1p-26;
  return low + u * (high - low);
}

template <class Got, class Want>
double worst(double low, double high, Got got, Want want) {
  double w = 0;
  for (uint64_t i = 0; i < 40000; ++i) {
    const double x = uniform(i, low, high);
    const double e = ulps(got(x), want(static_cast<long double>(x)));
    w = e <= w ? w : e;  // also keeps NaN
  }
  return w;
}

}  // namespace

TEST_CASE("exp and log stay within one ulp") {
  const auto e = [](long double x) { return expl(x); };
  const auto l = [](long double x) { return logl(x); };
  CHECK(worst(-1, 1, math::exp, e) <= 1);
  CHECK(worst(-708, 709.7, math::exp, e) <= 1);
  CHECK(worst(0.5, 2, math::log, l) <= 1);
  CHECK(worst(1e-9, 1e-6, math::log, l) <= 1);
  CHECK(worst(1, 1e300, math::log, l) <= 1);
  CHECK(worst(1e-310, 1e-308, math::log, l) <= 1);
  CHECK(math::exp(0.0) == 1.0);
  CHECK(math::log(1.0) == 0.0);
  CHECK(math::exp(-746.0) == 0.0);
  CHECK(math::exp(710.0) == INFINITY);
  CHECK(math::log(0.0) == -INFINITY);
  CHECK(math::exp(-744.0) == 1e-323);  // below the normal numbers
}

TEST_CASE("sin and cos stay within one ulp up to kMaxAngle") {
  const auto s = [](long double x) { return sinl(x); };
  const auto c = [](long double x) { return cosl(x); };
  for (double limit : {1.0, 10.0, 1000.0, math::kMaxAngle}) {
    CAPTURE(limit);
    CHECK(worst(-limit, limit, math::sin, s) <= 1);
    CHECK(worst(-limit, limit, math::cos, c) <= 1);
  }
  // Near multiples of pi/2 the result is the remainder of the reduction.
  for (int k = 1; k < 1000000; k = k * 3 + 1) {
    const double x = k * (math::kPi / 2);
    CHECK(ulps(math::sin(x), sinl(x)) <= 1);
    CHECK(ulps(math::cos(x), cosl(x)) <= 1);
  }
  CHECK_THROWS_AS(math::cos(2e6), Error);
}

TEST_CASE("integral powers are one ulp exact, others as stated") {
  for (double base : {0.9, 0.95, 0.999, 0.9999, 1.0001, 2.0, 10.0, -3.0})
    for (int n : {0, 1, 2, 3, 10, 100, 1000, -1, -5, -100})
      if (std::fabs(static_cast<double>(powl(base, n))) <= 1e308)
        CHECK(ulps(math::pow(base, n), powl(base, n)) <= 1);
  CHECK(ulps(math::pow(0.999, 200000), powl(0.999, 200000)) <= 1);
  for (double theta : {1e4, 5e5, 1e6})
    for (int i = 0; i < 64; ++i) {
      const double y = -2.0 * i / 128 - 1e-3;
      CHECK(ulps(math::pow(theta, y), powl(theta, y)) <= 2 + std::fabs(y * std::log(theta)));
    }
  CHECK(math::pow(0.5, 2000) == 0.0);
  CHECK(math::pow(2.0, 2000) == INFINITY);
  CHECK_THROWS_AS(math::pow(-2.0, 0.5), Error);
}

TEST_CASE("known bits: the same on every machine") {
  // The nearest double to e is 0x1.5bf0a8b145769p+1; this function returns the next one.
  CHECK(math::exp(1.0) == 0x1.5bf0a8b14576ap+1);
  CHECK(math::log(10.0) == 0x1.26bb1bbb55516p+1);
  CHECK(math::sin(1.0) == 0x1.aed548f090ceep-1);
  CHECK(math::cos(1.0) == 0x1.14a280fb5068cp-1);
  CHECK(math::sqrt(2.0) == 0x1.6a09e667f3bcdp+0);
}
