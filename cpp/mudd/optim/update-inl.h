// The loop of every optimizer's kernel: it sums the uses of a tied parameter in order, ((g0 + g1) + g2) + g3,
// times grad_scale, calls the formula with (index, lanes, g), and checks that the written values are finite.
// Included by kernels only.
#pragma once

#include "mudd/base/simd/bf16.h"
#include "mudd/base/simd/rows.h"
#include "mudd/optim/update_kernels.h"

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

// Checks whole vectors: 0 * x is 0 for a finite x and NaN for any other, and NaN stays in a sum.
class FiniteCheck {
 public:
  void see(Vec a, Vec b, Vec c, int lanes) {
    const Vec zero = Vec::zero();
    zeros_ = zeros_ + first_lanes(fma(a, zero, fma(b, zero, c * zero)), lanes);
  }
  void see(Vec a, Vec b, int lanes) { see(a, b, Vec::zero(), lanes); }
  bool passed() const { return zeros_.sum() == 0.0f; }

 private:
  Vec zeros_ = Vec::zero();
};

// Return a moment as it is stored: bf16 rounds the largest floats to infinity.
inline Vec as_stored(const float*, Vec v) { return v; }
inline Vec as_stored(const bf16*, Vec v) { return round_bf16(v); }
// The same of a second moment: bf16 cuts it after an offset of the update.
inline Vec second_as_stored(const float*, Vec v, int32_t) { return v; }
inline Vec second_as_stored(const bf16*, Vec v, int32_t offset) { return cut_bf16(v, offset); }

}  // namespace mudd::MUDD_ISA
