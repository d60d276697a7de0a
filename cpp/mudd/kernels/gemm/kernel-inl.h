// The gemm rows of one level (gemm.h): packing, GEMMs, gradients.
#include "mudd/kernels/gemm/row-inl.h"

namespace mudd::MUDD_ISA {

const GemmKernels gemm_f32 = row_of_unit<F32Unit>(), gemm_bf16 = row_of_unit<WidenUnit>();

}  // namespace mudd::MUDD_ISA
