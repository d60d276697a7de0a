// cross_entropy as a formula, for any number type whose real part orders it.
#pragma once

#include <cmath>
#include <complex>
#include <cstdint>
#include <vector>

namespace mudd::reference {

// Sum of the losses of the rows with target >= 0.
template <class N>
N cross_entropy(int64_t rows, int64_t d_model, int64_t vocabulary, const N* h, const N* head,
                const int32_t* targets) {
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
    loss += log(sum) + N(largest) - logits[targets[r]];
  }
  return loss;
}

// Return true if the target is the first of the largest logits; false if one of them is NaN.
template <class N>
bool guessed(int64_t vocabulary, const N* logits, int32_t target) {
  for (int64_t v = 0; v < vocabulary; ++v) {
    if (!(logits[v] <= logits[target]) || (v < target && logits[v] == logits[target])) return false;
  }
  return std::isfinite(logits[target]);
}

}  // namespace mudd::reference
