// convert: conversions between fp32 and bf16 or fp16. Conversion to fp32 is exact; conversion from it rounds to
// nearest even, and NaN stays NaN. fp16 keeps denormals and turns values above its range into infinity.
#pragma once

#include <cstdint>
#include <span>

#include "mudd/base/kernel_table.h"
#include "mudd/base/types.h"

namespace mudd {

// Return the offset of step t for a value that is cut to bf16: 40503 t mod 65536. In 65,536 steps every
// offset occurs once, so that the errors cancel over steps. 40503 / 65536 is near the golden ratio: also few steps
// have offsets at equal distances.
MUDD_ALWAYS_INLINE constexpr int32_t cut_offset(int64_t t) {
  return static_cast<int32_t>(uint64_t{40503} * static_cast<uint64_t>(t) % 65536);
}

struct ConvertKernels {
  void (*widen)(int64_t n, const bf16* x, float* y);
  void (*narrow)(int64_t n, const float* x, bf16* y);
  // Round x to the nearest bf16 values, in fp32; y may be x.
  void (*round)(int64_t n, const float* x, float* y);
  // Round x to bf16 values by cut_bf16 with this offset (base/simd/bf16.h), in fp32, y may be x; or as bf16.
  void (*cut)(int64_t n, const float* x, int32_t offset, float* y);
  void (*cut_narrow)(int64_t n, const float* x, int32_t offset, bf16* y);
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
