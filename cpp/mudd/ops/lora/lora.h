// lora: y = x w + scale (d x) a b + bias + residual, a frozen matrix and its low-rank adapter (Hu et al. 2021).
//
// Inputs: x_RK (any row stride), w [K, N], a [K, rank], b [rank, N], bias_N (optional), residual_RN (optional).
// Output: y_RN; it may take over the residual's memory.
// d: dropout of x on the way to the adapter alone (base/dropout.h has the draws), where the gradient of a is
// wanted.
//
// Saved: u = scale (d x) a, fp32 [R, rank].
//
// Backward, with du = scale dy b^T:
//   dx = dy w^T + d (du a^T),  dw = x^T dy,  da = (d x)^T du,  db = u^T dy,  dbias = sum over rows of dy,
//   dresidual = dy (the executor passes it). What is not wanted is not computed: dw of a frozen w never is.
//
// In bf16 u and du stay fp32, and what the adapter adds to y and dx is rounded once where these are bf16.
// Sums over rows run in the order of contracts 2; y and dx of a row depend on that row only.
#pragma once

#include "mudd/graph/op_spec.h"

namespace mudd {

const OpSpec& lora_op();

}  // namespace mudd
