// The part of a matrix along its largest singular values, as two factors: dense maths by Eigen, never inside
// kernels.
#pragma once

#include <cstdint>

namespace mudd {

// Compute a [k, rank] and b [rank, n] with scale a b = U_r S_r V_r^T, the `rank` largest singular values of w
// [k, n], each factor with the square root of S: a = U_r (S_r / scale)^1/2, b = (S_r / scale)^1/2 V_r^T (Meng
// et al. 2024). In double from the eigenvectors of the smaller Gram matrix; zeros above the rank of w. scale >
// 0. Row-major, finite.
void principal_factors(const float* w, int64_t k, int64_t n, int64_t rank, double scale, float* a, float* b);

}  // namespace mudd
