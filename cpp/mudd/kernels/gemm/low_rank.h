// low_rank: a GEMM whose right operand is W + scale A B with a thin A and B. The operand is never formed: u =
// scale (x A), then c = (u B + x W) + bias + residual. Also the gradients that need u.
#pragma once

#include <span>

#include "mudd/kernels/gemm/gemm.h"

namespace mudd {

// The pointers of each GEMM are at the start of the matrices. All have one compute type.
struct LowRankGemm {
  GemmBlock down;      // u [m, rank] in fp32, without an epilogue
  float scale = 1.0f;  // of u
  GemmBlock up;        // u B: its a is down's c; the c of `full`, no epilogue
  GemmBlock full;      // x W with c and its epilogue, whose residual may be c; m = 0: skip this and `up`
  std::span<const GradBlock> gradients;  // may read u; scratch and compute type as in weight_gradients
};

// Compute all in one parallel region: packing, u, the gradients, then the blocks of c, whose chains continue
// from the rank over k. c may overlap no operand but the residual. If c starts inside a gradient's output, c
// comes first and the gradients add to it.
void multiply_low_rank(const LowRankGemm& all);

// Compute one thread's block of c = u B + x W: the chains of `full` start from u B. `up` is the GEMM u B; its shape
// is the one of `full` except k, its c is not written, and it has no epilogue.
void multiply_from_low_rank(const GemmBlock& up, const GemmBlock& full);

}  // namespace mudd
