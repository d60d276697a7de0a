// gemm_bf16 by vdpbf16ps.
#include "mudd/kernels/gemm/dot-inl.h"
#include "mudd/kernels/gemm/row-inl.h"

namespace mudd::MUDD_ISA {

const GemmKernels gemm_bf16 = row_of_unit<DotUnit>();

}  // namespace mudd::MUDD_ISA
