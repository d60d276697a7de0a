// low_rank: a GEMM whose right operand is W + scale A B, with A and B of few columns and rows, which is never
// formed: u = scale (x A), then c = (u B + x W) + bias + residual; and the gradients that wait for u.
#pragma once

#include <span>

#include "mudd/kernels/gemm/gemm.h"

namespace mudd {

// The pointers of each GEMM are those of the whole. All have one compute type.
struct LowRankGemm {
  GemmBlock down;      // u [m, rank] in fp32, without an epilogue
  float scale = 1.0f;  // of u
  GemmBlock up;        // u B: its a is down's c; the c of `full`, no epilogue
  GemmBlock full;      // x W with c and its epilogue, whose residual may be c; m = 0: neither this nor `up`
  std::span<const GradBlock> gradients;  // may read u; scratch and compute type as weight_gradients asks
};

// All of it in one parallel region: packing, u, the gradients, then the blocks of c, where each chain over the
// rank goes on over k. c may overlap no operand but the residual. If c begins inside of a gradient's output, c
// comes first, then the gradients, which add to it.
void multiply_low_rank(const LowRankGemm& all);

}  // namespace mudd
