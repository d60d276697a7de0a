// Gradients of a reference by the complex step: exact to rounding, without a line of backward.
#pragma once

#include <complex>
#include <vector>

namespace mudd::test {

// d(sum of dy y)/d(input `of`) at `inputs`, where y = run(inputs), all complex. An absent input is empty.
template <class Reference>
std::vector<double> complex_step(const std::vector<std::vector<float>>& inputs, size_t of,
                                 const std::vector<float>& dy, Reference run) {
  using C = std::complex<double>;
  const double h = 1e-30;
  std::vector<std::vector<C>> in;
  for (const std::vector<float>& v : inputs) in.emplace_back(v.begin(), v.end());
  std::vector<double> gradient(in[of].size());
  for (size_t i = 0; i < gradient.size(); ++i) {
    in[of][i] += C(0, h);
    const std::vector<C> y = run(in);
    in[of][i] -= C(0, h);
    for (size_t j = 0; j < y.size(); ++j) gradient[i] += dy[j] * y[j].imag() / h;
  }
  return gradient;
}

}  // namespace mudd::test
