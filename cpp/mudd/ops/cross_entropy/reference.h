// cross_entropy as a formula, for any number type whose real part orders it.
#pragma once

#include <cmath>
#include <complex>
#include <cstdint>
#include <vector>

namespace mudd::reference {

// Store the logits of a row of h, and return the logarithm of the sum of their exponentials.
template <class N>
N row_logits(int64_t d_model, int64_t vocabulary, const N* row, const N* head, std::vector<N>& logits) {
  using std::exp;
  using std::log;
  using std::real;
  logits.resize(static_cast<size_t>(vocabulary));
  double largest = -1e300;
  for (int64_t v = 0; v < vocabulary; ++v) {
    N sum = 0;
    for (int64_t d = 0; d < d_model; ++d) sum += row[d] * head[v * d_model + d];
    logits[v] = sum;
    if (real(sum) > largest) largest = real(sum);
  }
  N sum = 0;
  for (const N& logit : logits) sum += exp(logit - N(largest));
  return log(sum) + N(largest);
}

// Sum of the losses of the rows with target >= 0.
template <class N>
N cross_entropy(int64_t rows, int64_t d_model, int64_t vocabulary, const N* h, const N* head,
                const int32_t* targets) {
  N loss = 0;
  std::vector<N> logits;
  for (int64_t r = 0; r < rows; ++r) {
    if (targets[r] < 0) continue;
    const N lse = row_logits(d_model, vocabulary, h + r * d_model, head, logits);
    loss += lse - logits[targets[r]];
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
