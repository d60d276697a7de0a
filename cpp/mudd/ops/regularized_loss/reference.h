// regularized_loss as a formula, for any number type whose real part orders it.
#pragma once

#include <cstdint>
#include <vector>

#include "mudd/ops/cross_entropy/reference.h"

namespace mudd::reference {

// Sum of the losses of the rows with target >= 0.
template <class N>
N regularized_loss(int64_t rows, int64_t d_model, int64_t vocabulary, const N* h, const N* head,
                   const int32_t* targets, double label_smoothing, double z) {
  N loss = 0;
  std::vector<N> logits;
  for (int64_t r = 0; r < rows; ++r) {
    if (targets[r] < 0) continue;
    const N lse = row_logits(d_model, vocabulary, h + r * d_model, head, logits);
    for (int64_t v = 0; v < vocabulary; ++v) {
      const double q =
          (v == targets[r] ? 1 - label_smoothing : 0) + label_smoothing / static_cast<double>(vocabulary);
      loss += N(q) * (lse - logits[v]);
    }
    loss += N(z) * lse * lse;
  }
  return loss;
}

}  // namespace mudd::reference
