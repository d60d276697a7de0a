// glu as a formula, for double or complex<double>.
#pragma once

#include <cstdint>

#include "mudd/ops/activation/reference.h"

namespace mudd::reference {

template <class N>
void glu(int64_t n, Activation a, const N* gate, const N* up, N* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = activate(a, gate[i]) * up[i];
}

}  // namespace mudd::reference
