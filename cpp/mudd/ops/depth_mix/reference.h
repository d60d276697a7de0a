// depth_mix as a formula, for double or complex<double>.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "mudd/ops/activation/reference.h"
#include "mudd/ops/rms_norm/reference.h"

namespace mudd::reference {

template <class N>
struct DepthMixReference {
  int64_t rows = 0, width = 0, hidden = 0;
  int64_t streams = 0;
  bool direct = false, post_norm = false;
  Activation activation = Activation::gelu_tanh;
  double eps = 1e-6, norm_eps = 1e-6;
  std::vector<N> bias, w1, w2, generator_gain, newest;  // empty: absent
  std::vector<std::vector<N>> gains;                    // of the leading streams
  std::vector<std::vector<N>> states;

  const N* last() const { return newest.empty() ? states.back().data() : newest.data(); }

  // Return A[c l + j] of one token.
  std::vector<N> weights(int64_t r) const {
    const int64_t count = streams * static_cast<int64_t>(states.size());
    std::vector<N> a(bias.begin(), bias.end());
    if (w1.empty()) return a;
    std::vector<N> u(static_cast<size_t>(width));
    rms_norm<N>(1, width, last() + r * width, generator_gain.empty() ? nullptr : generator_gain.data(), eps,
                u.data());
    for (int64_t k = 0; k < hidden; ++k) {
      N pre = 0;
      for (int64_t d = 0; d < width; ++d) pre += u[d] * w1[d * hidden + k];
      const N h = activate(activation, pre);
      for (int64_t i = 0; i < count; ++i) a[i] += h * w2[k * count + i];
    }
    return a;
  }

  // Return y[c][r * width + d].
  std::vector<std::vector<N>> run() const {
    const int64_t l = static_cast<int64_t>(states.size());
    std::vector<std::vector<N>> y(static_cast<size_t>(streams), std::vector<N>(static_cast<size_t>(rows * width)));
    for (int64_t r = 0; r < rows; ++r) {
      const std::vector<N> a = weights(r);
      for (int64_t c = 0; c < streams; ++c) {
        const bool post = post_norm && c == streams - 1, normed = c < static_cast<int64_t>(gains.size());
        N* row = y[c].data() + r * width;
        const N* x = last() + r * width;
        for (int64_t d = 0; d < width; ++d) {
          row[d] = direct && !post ? x[d] : N(0);
          for (int64_t j = 0; j < l; ++j) row[d] += a[c * l + j] * states[j][r * width + d];
        }
        if (normed) rms_norm<N>(1, width, std::vector<N>(row, row + width).data(), gains[c].data(), norm_eps, row);
        for (int64_t d = 0; post && d < width; ++d) row[d] += x[d];
      }
    }
    return y;
  }
};

}  // namespace mudd::reference
