// Rows of the elementary functions over Vec, for simd_math_test only: each level's base/simd/math.h on an array.
#pragma once

#include <cstdint>

#include "mudd/base/kernel_table.h"

namespace mudd {

constexpr int64_t kChoices = 7;  // results of MathKernels::choices

struct MathKernels {
  using Function = void (*)(const float* x, float* y, int64_t n);  // n a multiple of 16
  Function exp, exp_nonpositive, log, tanh, erf, sigmoid;
  void (*fma)(const float* a, const float* b, const float* c, float* y, int64_t n);  // y = a b + c
  // y: min(a, b), max(a, b), the smaller and the larger by less() and select(), |a|, the square root of |b|, and b
  // if it is more than a, else 1; n of each.
  void (*choices)(const float* a, const float* b, float* y, int64_t n);
};

#if defined(__x86_64__)
#define MUDD_MATH_LEVELS(row) row(avx512) row(avx2) row(portable)
#elif defined(__aarch64__)
#define MUDD_MATH_LEVELS(row) row(neon) row(portable)
#else
#define MUDD_MATH_LEVELS(row) row(portable)
#endif
#define MUDD_MATH_DECLARE(level)          \
  namespace level {                       \
  extern const MathKernels simd_math_f32; \
  }
MUDD_MATH_LEVELS(MUDD_MATH_DECLARE)
#undef MUDD_MATH_DECLARE

}  // namespace mudd
