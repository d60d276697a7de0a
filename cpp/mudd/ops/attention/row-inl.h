// The row of a unit (matmul-inl.h), for the table of kernels. Built per level.
#pragma once

#include "mudd/ops/attention/backward-inl.h"
#include "mudd/ops/attention/forward-inl.h"

namespace mudd::MUDD_ISA {
namespace {

template <class U>
constexpr AttentionKernels row_of_unit() {
  return {kQueries, kK, fwd_scratch<U>, fwd<U>, bwd_scratch<U>, delta, bwd<U>};
}

}  // namespace
}  // namespace mudd::MUDD_ISA
