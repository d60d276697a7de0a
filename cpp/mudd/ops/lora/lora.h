// lora: y = x w + scale (d x) a b + bias + residual, a frozen matrix and its low-rank adapter (Hu et al. 2021).
//
// Inputs: x_RK (any row stride), w [K, N], a [K, rank], b [rank, N], bias_N (optional), residual_RN (optional).
// Output: y_RN; it may take over the residual's memory.
// d: dropout of the adapter's input (base/dropout.h has the draws), if the gradient of a is requested.
//
// Saved: u = scale (d x) a, fp32 [R, rank].
//
// Backward, with du = scale dy b^T:
//   dx = dy w^T + d (du a^T),  dw = x^T dy,  da = (d x)^T du,  db = u^T dy,  dbias = sum over rows of dy,
//   dresidual = dy (the executor passes it). Gradients that are not requested are not computed (dw of a frozen w).
//
// In bf16, u and du stay fp32, and the adapter's part of a bf16 y or dx is rounded once.
// Sums over rows run in the order of contracts 2; y and dx of a row depend on that row only.
#pragma once

#include "mudd/graph/op_spec.h"

namespace mudd {

const OpSpec& lora_op();

}  // namespace mudd
