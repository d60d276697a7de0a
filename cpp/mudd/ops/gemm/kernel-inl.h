// The gemm rows of one level (gemm.h): packing, products, gradients.
#include "mudd/ops/gemm/gradient-inl.h"
#include "mudd/ops/gemm/multiply-inl.h"
#include "mudd/ops/gemm/pack-inl.h"

namespace mudd::MUDD_ISA {
namespace {

template <class Unit>
constexpr GemmKernels row_of_unit() {
  return {kMr,    kNr,          Unit::kPacked,        1, pack<Unit>, pack_transposed<Unit>, multiply<Unit>, kGradM,
          kGradN, grad_scratch, weight_gradient<Unit>};
}

}  // namespace

const GemmKernels gemm_f32 = row_of_unit<F32Unit>(), gemm_bf16 = row_of_unit<WidenUnit>();

}  // namespace mudd::MUDD_ISA
