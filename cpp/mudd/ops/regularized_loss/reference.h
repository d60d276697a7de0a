// regularized_loss as a formula, for any number type whose real part orders it.
#pragma once

#include <cmath>
#include <complex>
#include <cstdint>
#include <vector>

namespace mudd::reference {

// Sum of the losses of the rows with target >= 0.
template <class N>
N regularized_loss(int64_t rows, int64_t d_model, int64_t vocabulary, const N* h, const N* head,
                   const int32_t* targets, double label_smoothing, double z) {
  using std::exp;
  using std::log;
  using std::real;
  N loss = 0;
  std::vector<N> logits(static_cast<size_t>(vocabulary));
  for (int64_t r = 0; r < rows; ++r) {
    if (targets[r] < 0) continue;
    double largest = -1e300;
    for (int64_t v = 0; v < vocabulary; ++v) {
      N sum = 0;
      for (int64_t d = 0; d < d_model; ++d) sum += h[r * d_model + d] * head[v * d_model + d];
      logits[v] = sum;
      if (real(sum) > largest) largest = real(sum);
    }
    N sum = 0;
    for (const N& logit : logits) sum += exp(logit - N(largest));
    const N lse = log(sum) + N(largest);
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
