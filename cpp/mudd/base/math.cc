#include "mudd/base/math.h"

#include <cstdint>
#include <cstring>
#include <limits>

#include "mudd/base/check.h"

namespace mudd::math {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// ln 2 and pi/2 in pieces whose low bits are zero: integer multiples (below 2^20) of all but the last are exact.
constexpr double kLn2High = 0x1.62e42feep-1, kLn2Low = 0x1.a39ef35793c76p-33;
constexpr double kHalfPi1 = 0x1.921fb544p0, kHalfPi2 = 0x1.0b4611a6p-34, kHalfPi3 = 0x1.3198a2e037073p-69;

double from_bits(uint64_t bits) {
  double x;
  std::memcpy(&x, &bits, 8);
  return x;
}

uint64_t to_bits(double x) {
  uint64_t bits;
  std::memcpy(&bits, &x, 8);
  return bits;
}

// Return 2^n for n in [-1022, 1023].
double power_of_two(int n) { return from_bits(static_cast<uint64_t>(n + 1023) << 52); }

// Return the nearest integer of |x| < 2^51, halves to even.
double nearest(double x) { return (x + 0x1.8p52) - 0x1.8p52; }

// A value as the unevaluated sum high + low, |low| <= ulp(high) / 2.
struct Pair {
  double high, low;
};

Pair fast_sum(double a, double b) {  // |a| >= |b|
  const double s = a + b;
  return {s, b - (s - a)};
}

// Return a * b exactly, by Dekker's algorithm with Veltkamp's splitting (1971). |a|, |b| below 2^970.
Pair product(double a, double b) {
  constexpr double kSplit = 0x1p27 + 1;
  const double ca = kSplit * a, cb = kSplit * b;
  const double a1 = ca - (ca - a), a2 = a - a1, b1 = cb - (cb - b), b2 = b - b1;
  const double p = a * b;
  return {p, ((a1 * b1 - p) + a1 * b2 + a2 * b1) + a2 * b2};
}

Pair product(Pair a, Pair b) {
  const Pair p = product(a.high, b.high);
  return fast_sum(p.high, p.low + (a.high * b.low + a.low * b.high));
}

// Return x^n by repeated squaring with twice the precision; in plain double outside the range of the splitting.
double integer_power(double x, int64_t n) {
  const bool inverse = n < 0;
  Pair result{1, 0}, square{x, 0};
  for (uint64_t k = static_cast<uint64_t>(inverse ? -n : n); k; k >>= 1) {
    if (k & 1) result = product(result, square);
    if (k > 1) square = product(square, square);
  }
  if (!(result.high > -0x1p960 && result.high < 0x1p960) || (result.high > -0x1p-900 && result.high < 0x1p-900)) {
    double r = 1, s = x;
    for (uint64_t k = static_cast<uint64_t>(inverse ? -n : n); k; k >>= 1, s *= s)
      if (k & 1) r *= s;
    return inverse ? 1 / r : r;
  }
  if (!inverse) return result.high + result.low;
  const double q = 1 / result.high;  // one Newton step with the exact residual
  const Pair back = product(q, result.high);
  return q + q * (((1 - back.high) - back.low) - q * result.low);
}

// Return the quarter turns n, and the rest high + low, |high| <= pi/4, of x = n pi/2 + rest (Cody and Waite
// 1980).
int quarter_turns(double x, Pair* rest) {
  check(x >= -kMaxAngle && x <= kMaxAngle, "math", "angle: expected at most ", kMaxAngle, " radians, got ", x);
  const double n = nearest(x * (2 / kPi));
  const double a = x - n * kHalfPi1;  // exact
  const double w = n * kHalfPi2;      // exact
  const double b = a - w;
  const double low = ((a - b) - w) - n * kHalfPi3;
  rest->high = b + low;
  rest->low = (b - rest->high) + low;
  return static_cast<int>(static_cast<int64_t>(n) & 3);
}

// Taylor's series on |high| <= pi/4; the first omitted terms are below 2^-58 of the value.
double sin_near_zero(Pair a) {
  const double z = a.high * a.high;
  double p = 1 / 355687428096000.0;
  for (double c : {-1 / 1307674368000.0, 1 / 6227020800.0, -1 / 39916800.0, 1 / 362880.0, -1 / 5040.0, 1 / 120.0})
    p = p * z + c;
  // sin(high + low) = high + (high^3 (p z - 1/6) + low cos(high)); cos to second order is enough for low.
  const double cube = a.high * z;
  return a.high + (cube * (p * z - 1 / 6.0) + a.low * (1 - 0.5 * z));
}

double cos_near_zero(Pair a) {
  const double z = a.high * a.high;
  double p = 1 / 20922789888000.0;
  for (double c : {-1 / 87178291200.0, 1 / 479001600.0, -1 / 3628800.0, 1 / 40320.0, -1 / 720.0, 1 / 24.0})
    p = p * z + c;
  const double half = 0.5 * z;
  const double first = 1 - half;  // its rounding error is added back
  return first + (((1 - first) - half) + (z * z * p - a.high * a.low));
}

}  // namespace

double sqrt(double x) {
  if (x < 0) return kNan;
  return __builtin_sqrt(x);  // one instruction, exact by IEEE 754
}

double exp(double x) {
  if (x != x) return x;
  if (x > 709.79) return kInfinity;
  if (x < -745.2) return 0;
  const double n = nearest(x * 1.4426950408889634);
  const double high = x - n * kLn2High, low = n * kLn2Low;
  const double r = high - low;  // |r| <= ln2 / 2
  const double lost = (high - r) - low;
  double p = 1 / 6227020800.0;  // Taylor to degree 13: the next term is below 2^-57
  for (double c : {1 / 479001600.0, 1 / 39916800.0, 1 / 3628800.0, 1 / 362880.0, 1 / 40320.0, 1 / 5040.0,
                   1 / 720.0, 1 / 120.0, 1 / 24.0, 1 / 6.0, 0.5})
    p = p * r + c;
  const double y = 1 + (r + (r * r * p + lost));
  const int half = static_cast<int>(n) / 2;  // 2^n in two factors: n reaches past both ends of the exponent
  return y * power_of_two(half) * power_of_two(static_cast<int>(n) - half);
}

double log(double x) {
  if (x != x || x == kInfinity) return x;
  if (x < 0) return kNan;
  if (x == 0) return -kInfinity;
  int e = 0;
  if (x < 0x1p-1022) {
    x *= 0x1p54;
    e = -54;
  }
  const uint64_t bits = to_bits(x);
  e += static_cast<int>(bits >> 52) - 1023;
  double m = from_bits((bits & 0xfffffffffffffull) | 0x3ff0000000000000ull);
  if (m > 1.4142135623730951) {
    m *= 0.5;
    e += 1;
  }
  // ln(1 + f) = 2 atanh(s) with s = f / (2 + f); 2s = f - s f keeps the exact f first.
  const double f = m - 1, s = f / (2 + f), z = s * s;
  double p = 2 / 23.0;
  for (double c : {2 / 21.0, 2 / 19.0, 2 / 17.0, 2 / 15.0, 2 / 13.0, 2 / 11.0, 2 / 9.0, 2 / 7.0, 2 / 5.0, 2 / 3.0})
    p = p * z + c;
  const double half = 0.5 * f * f;  // f - s f + s z p = f - (half - s (half + z p))
  const double ed = static_cast<double>(e);
  return ed * kLn2High + (f - (half - (s * (half + z * p) + ed * kLn2Low)));
}

double sin(double x) {
  if (x != x) return x;
  Pair a;
  switch (quarter_turns(x, &a)) {
    case 0: return sin_near_zero(a);
    case 1: return cos_near_zero(a);
    case 2: return -sin_near_zero(a);
    default: return -cos_near_zero(a);
  }
}

double cos(double x) {
  if (x != x) return x;
  Pair a;
  switch (quarter_turns(x, &a)) {
    case 0: return cos_near_zero(a);
    case 1: return -sin_near_zero(a);
    case 2: return -cos_near_zero(a);
    default: return sin_near_zero(a);
  }
}

double pow(double x, double y) {
  if (y > -0x1p31 && y < 0x1p31 && nearest(y) == y) return integer_power(x, static_cast<int64_t>(y));
  check(x > 0, "math", "pow: expected a positive base for a broken exponent, got ", x);
  return exp(y * log(x));
}

}  // namespace mudd::math
