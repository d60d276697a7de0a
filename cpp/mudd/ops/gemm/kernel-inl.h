// The gemm row of one level (gemm.h): packing, products, gradients.
#include "mudd/ops/gemm/gradient-inl.h"
#include "mudd/ops/gemm/multiply-inl.h"
#include "mudd/ops/gemm/pack-inl.h"

namespace mudd::MUDD_ISA {

const GemmKernels gemm_f32 = {kMr,    kNr,    pack,         pack_transposed, multiply,
                              kGradM, kGradN, grad_scratch, weight_gradient};

}  // namespace mudd::MUDD_ISA
