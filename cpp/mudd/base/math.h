// Elementary functions in double precision. The C library chooses its code by CPU, so its last bits differ
// between machines (contracts 5); these use only + - * / and the exactly rounded square root, no fma, and have
// the same bits on every CPU. For schedules, initial values, RoPE tables and bias corrections, not for kernels.
// The errors below are checked against long double in tests/cpp/math_test.cc; ulp = units in the last place.
#pragma once

namespace mudd::math {

constexpr double kPi = 3.14159265358979323846;

double sqrt(double x);  // exactly rounded; NaN for x < 0
double exp(double x);   // 1 ulp; 0 below -745.2, infinity above 709.8
double log(double x);   // 1 ulp; -infinity at 0, NaN below
double sin(double x);   // 1 ulp for |x| <= kMaxAngle; an Error beyond, NaN for NaN
double cos(double x);   // the same
// x^y. For integral y below 2^31: 1 ulp. Else x must be positive: 2 + |y ln x| ulp.
double pow(double x, double y);

constexpr double kMaxAngle = 1.6e6;  // about 2^20 quarter turns: the range of an exact reduction

}  // namespace mudd::math
