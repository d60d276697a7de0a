// The factored second moment of adamw (Shazeer and Stern 2018, arXiv 1804.04235, algorithm 4 without its epsilon
// 1). A matrix [R, C] has a moment for each row and for each column in place of one for each weight:
//   r_i = beta2 r_i + (1 - beta2) mean over j of g_ij^2;
//   c_j = beta2 c_j + (1 - beta2) mean over i of g_ij^2;
//   v_ij = r_i c_j / mean(r);                             0 if mean(r) = 0.
// adamw then uses v in place of its second moment, with its bias correction and eps. Vectors have a moment for
// each element as usual.
//
// Roundings: a row of g^2 is summed in fp32 by pieces of 4,096 columns (sixteen lanes), a column by blocks of 64
// rows in their order. Pieces, blocks and mean(r) are added in double, in their order. r and c are computed in
// double and rounded to fp32, v is fp32(r_i / mean(r)) c_j. The order depends on the shape only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "mudd/optim/optimizer.h"

namespace mudd {

// Return the scratch size of update_factors: a fp32 number for every 64 rows of each column.
int64_t factors_bytes(std::span<const UpdateParameter> matrices);

// Update row_moment and column_moment of the matrices that have them, and set their per_row_mean.
void update_factors(std::span<UpdateParameter> matrices, const UpdateKernels& kernels, double beta2,
                    double grad_scale, std::byte* scratch);

}  // namespace mudd
