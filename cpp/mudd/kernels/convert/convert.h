// convert: numbers between fp32 and bf16 or fp16. Widening is exact; narrowing rounds to nearest even, NaN stays
// NaN. fp16: denormals are kept, numbers past its range become infinite.
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
  void (*widen_half)(int64_t n, const f16* x, float* y);
  void (*narrow_half)(int64_t n, const float* x, f16* y);
};

MUDD_DECLARE_KERNELS(ConvertKernels, convert_f32)

std::span<const KernelRow<ConvertKernels>> convert_rows();
const ConvertKernels& convert_kernels();  // the best row of the active level, chosen once

// n numbers from `x` on, whatever their type (f32, bf16 or f16), as fp32; and back, rounded to the type of `y`.
void copy_wide(int64_t n, ConstCells x, float* y);
void copy_rounded(int64_t n, const float* x, Cells y);

// All n numbers, threads over blocks of them.
void widen(int64_t n, const bf16* x, float* y);
void narrow(int64_t n, const float* x, bf16* y);

}  // namespace mudd
