// The row of a unit (unit-inl.h), for the table of kernels. Built per level.
#pragma once

#include "mudd/ops/gemm/gradient-inl.h"
#include "mudd/ops/gemm/multiply-inl.h"
#include "mudd/ops/gemm/pack-inl.h"

namespace mudd::MUDD_ISA {
namespace {

template <class Unit>
constexpr GemmKernels row_of_unit() {
  return {kMr,    kNr,    Unit::kPacked, Unit::kDepthUnit,     pack<Unit>, pack_transposed<Unit>, multiply<Unit>,
          kGradM, kGradN, grad_scratch,  weight_gradient<Unit>};
}

}  // namespace
}  // namespace mudd::MUDD_ISA
