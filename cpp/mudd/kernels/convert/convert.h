// convert: numbers between fp32 and bf16. Widening is exact; narrowing rounds to nearest even, NaN stays NaN.
#pragma once

#include <cstdint>
#include <span>

#include "mudd/base/kernel_table.h"
#include "mudd/base/types.h"

namespace mudd {

struct ConvertKernels {
  void (*widen)(int64_t n, const bf16* x, float* y);
  void (*narrow)(int64_t n, const float* x, bf16* y);
  // y = x rounded to what bf16 can hold; y may be x.
  void (*round)(int64_t n, const float* x, float* y);
};

#define MUDD_KERNEL(name, level)    \
  namespace level {                 \
  extern const ConvertKernels name; \
  }
#include "mudd/kernels/convert/kernels.inc"
#undef MUDD_KERNEL

std::span<const KernelRow<ConvertKernels>> convert_rows();
const ConvertKernels& convert_kernels();  // the best row of the active level, chosen once

// All n numbers, threads over blocks of them.
void widen(int64_t n, const bf16* x, float* y);
void narrow(int64_t n, const float* x, bf16* y);

}  // namespace mudd
