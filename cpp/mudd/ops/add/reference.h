// add as a formula, for any number type.
#pragma once

#include <cstdint>

namespace mudd::reference {

template <class N>
void add(int64_t n, const N* a, const N* b, N* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = a[i] + b[i];
}

}  // namespace mudd::reference
