// convert: conversions between fp32 and bf16 or fp16. Conversion to fp32 is exact; conversion from it rounds to
// nearest even, and NaN stays NaN. fp16 keeps denormals and turns values above its range into infinity.
#pragma once

#include <cstdint>
#include <span>

#include "mudd/base/kernel_table.h"
#include "mudd/base/types.h"

namespace mudd {

struct ConvertKernels {
  void (*widen)(int64_t n, const bf16* x, float* y);
  void (*narrow)(int64_t n, const float* x, bf16* y);
  // Round x to the nearest bf16 values, in fp32; y may be x.
  void (*round)(int64_t n, const float* x, float* y);
  void (*widen_half)(int64_t n, const f16* x, float* y);
  void (*narrow_half)(int64_t n, const float* x, f16* y);
};

MUDD_DECLARE_KERNELS(ConvertKernels, convert_f32)

std::span<const KernelRow<ConvertKernels>> convert_rows();
const ConvertKernels& convert_kernels();  // the best row of the active level, chosen once

// Copy n elements of `x` (f32, bf16 or f16) as fp32; and back, rounded to the type of `y`.
void copy_wide(int64_t n, ConstCells x, float* y);
void copy_rounded(int64_t n, const float* x, Cells y);

// Convert all n elements, with threads over blocks of them.
void widen(int64_t n, const bf16* x, float* y);
void narrow(int64_t n, const float* x, bf16* y);

}  // namespace mudd
