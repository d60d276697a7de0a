// moe_balance as formulas, for double or complex<double>.
#pragma once

#include <cstdint>
#include <vector>

namespace mudd::reference {

// metrics[l]: the metrics of layer l, [4 E + 3], summed over the samples of the average.
template <class N>
N moe_balance(const std::vector<std::vector<N>>& metrics, int64_t experts, int64_t k, bool pooled, double balance,
              double z) {
  N tokens = 0, loss = 0;
  std::vector<N> routed(static_cast<size_t>(experts), N(0)), mass(static_cast<size_t>(experts), N(0));
  for (const std::vector<N>& f : metrics) {
    const N n = f[static_cast<size_t>(4 * experts + 1)];
    for (size_t e = 0; e < static_cast<size_t>(experts); ++e) {
      routed[e] += f[e];
      mass[e] += f[e + static_cast<size_t>(experts)];
      if (!pooled)
        loss += balance * static_cast<double>(experts) * f[e] / (static_cast<double>(k) * n) *
                f[e + static_cast<size_t>(experts)] / n;
    }
    tokens += n;
    loss += z * f[static_cast<size_t>(4 * experts)] / n;
  }
  for (size_t e = 0; pooled && e < static_cast<size_t>(experts); ++e)
    loss += balance * static_cast<double>(experts) * routed[e] / tokens * mass[e] / tokens;
  return loss;
}

}  // namespace mudd::reference
