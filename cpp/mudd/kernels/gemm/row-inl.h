// The row of a unit (unit-inl.h), for the table of kernels. Built per level.
#pragma once

#include "mudd/kernels/gemm/gradient-inl.h"
#include "mudd/kernels/gemm/multiply-inl.h"
#include "mudd/kernels/gemm/pack-inl.h"

namespace mudd::MUDD_ISA {
namespace {

template <class Unit>
constexpr GemmKernels row_of_unit() {
  return {.mr = kMr,
          .nr = kNr,
          .packed = Unit::kPacked,
          .depth_unit = Unit::kDepthUnit,
          .pack = pack<Unit>,
          .pack_transposed = pack_transposed<Unit>,
          .multiply = multiply<Unit>,
          .kept_b = 0,
          .grad_m = kGradM,
          .grad_n = kGradN,
          .pack_x = 16,
          .pack_dy = 16,
          .grad_scratch = grad_scratch,
          .weight_gradient = weight_gradient<Unit>};
}

}  // namespace
}  // namespace mudd::MUDD_ISA
