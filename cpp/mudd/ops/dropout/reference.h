// dropout as a formula, for any number type.
#pragma once

#include <cstdint>

#include "mudd/base/dropout.h"

namespace mudd::reference {

// x, y: [samples, time, width]; residual may be null.
template <class N>
void dropout(const Dropout& draws, int64_t samples, int64_t time, int64_t width, const N* x, const N* residual,
             N* y) {
  for (int64_t b = 0; b < samples; ++b)
    for (int64_t t = 0; t < time; ++t)
      for (int64_t d = 0; d < width; ++d) {
        const int64_t i = (b * time + t) * width + d;
        y[i] = (residual ? residual[i] : N(0)) + N(static_cast<double>(draws.factor(b, t, d))) * x[i];
      }
}

}  // namespace mudd::reference
