// The GEMM of whole tensors.
#pragma once

#include "mudd/kernels/gemm/gemm.h"

namespace mudd {

// Return the GEMM c = a B without its right operand.
inline GemmBlock matmul_of(const Tensor& a, const Tensor& c, DType compute = DType::f32) {
  GemmBlock g;
  g.a = a.cells();
  g.lda = a.stride;
  g.c = c.cells();
  g.ldc = c.stride;
  g.m = a.rows;
  g.n = c.cols;
  g.k = a.cols;
  g.compute = compute;
  return g;
}

// Add `t` to the finished sums; the chains still start from zero. t may be c itself.
inline void add_residual(const Tensor& t, GemmBlock* g) {
  g->epilogue.residual = t.cells();
  g->epilogue.residual_stride = t.stride;
}

}  // namespace mudd
