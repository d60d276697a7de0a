// muon: momentum, then the nearest orthogonal matrix (Jordan et al. 2024; as torch.optim.Muon). It updates
// parameters of role matrix, slots, router and mix with two axes, or stacks of them, matrix by matrix.
//
// For a matrix W [rows, cols] with the summed gradient G times grad_scale:
//   M = momentum M + (1 - momentum) G
//   U = momentum M + (1 - momentum) G                      Nesterov
//   X = U / max(|U|, 1e-7), transposed if rows > cols      |U| the Frobenius norm
//   `steps` times: A = X X^T, P = a I + b A + c A A, X = P X    a, b, c = 3.4445, -4.775, 2.0315
//   W = W - decay W - lr adjust X
// adjust: original sqrt(max(1, fan_out / fan_in)); match_rms_adamw 0.2 sqrt(max(rows, cols)).
//
// All in fp32 (torch: the iteration in bf16). M is rounded when it is stored as bf16, U is not.
#pragma once

#include <memory>

#include "mudd/optim/optimizer.h"

namespace mudd {

const OptimizerSpec& muon_spec();

// Run Newton and Schulz's iteration on X [rows, cols], rows <= cols, of Frobenius norm 1 at most: `steps` times
// in fp32. scratch: orthogonalize_bytes, cache-line aligned. The result is in x.
void orthogonalize(float* x, int64_t rows, int64_t cols, int steps, std::byte* scratch);
int64_t orthogonalize_bytes(int64_t rows, int64_t cols);

}  // namespace mudd
