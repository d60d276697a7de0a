// embedding as a formula, for any number type.
#pragma once

#include <cstdint>

namespace mudd::reference {

template <class N>
void embedding(int64_t rows, int64_t d_model, const int32_t* ids, const N* table, const N* residual, N* y,
               double scale = 1) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t d = 0; d < d_model; ++d)
      y[r * d_model + d] = N(scale) * table[ids[r] * d_model + d] + (residual ? residual[r * d_model + d] : N(0));
}

// Add the gradient of the table to dtable.
template <class N>
void embedding_backward(int64_t rows, int64_t d_model, const int32_t* ids, const N* dy, N* dtable) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t d = 0; d < d_model; ++d) dtable[ids[r] * d_model + d] += dy[r * d_model + d];
}

}  // namespace mudd::reference
