// The loop of every optimizer's kernel: sums the uses of a tied parameter in order, ((g0 + g1) + g2) + g3, times
// grad_scale, and hands on (index, lanes, g). Included by kernels only.
#pragma once

#include "mudd/base/simd/bf16.h"
#include "mudd/base/simd/rows.h"
#include "mudd/train/update.h"

namespace mudd::MUDD_ISA {

template <class Body>
inline void over_gradient(int64_t n, const float* const* grads, int n_grads, float grad_scale, Body body) {
  const Vec scale = Vec::set1(grad_scale);
  over_row(n, [&](int64_t i, int lanes) {
    Vec g = load(grads[0] + i, lanes);
    for (int p = 1; p < n_grads; ++p) g = g + load(grads[p] + i, lanes);
    body(i, lanes, g * scale);
  });
}

}  // namespace mudd::MUDD_ISA
