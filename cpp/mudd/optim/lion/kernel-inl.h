// Compiled once for each ISA level, with its Vec; see lion.cc for the contract and the order of roundings.
#include "mudd/optim/update-inl.h"

namespace mudd::MUDD_ISA {
namespace {

inline Vec sign(Vec x) {
  const Vec zero = Vec::zero(), one = Vec::set1(1.0f);
  return select(less(zero, x), one, select(less(x, zero), zero - one, zero));
}

template <class Moment>
bool update(int64_t n, float* w, Moment* m, float*, const float* const* grads, int n_grads,
            const UpdateFactors& f) {
  const Vec beta1 = Vec::set1(f.beta1), rest1 = Vec::set1(f.one_minus_beta1), decay = Vec::set1(f.decay);
  const Vec beta2 = Vec::set1(f.beta2), rest2 = Vec::set1(f.one_minus_beta2), step = Vec::set1(f.step_size);
  FiniteCheck check;
  over_gradient(n, grads, n_grads, f.grad_scale, [&](int64_t i, int lanes, Vec g) {
    const Vec moment = load(m + i, lanes), old = load(w + i, lanes);
    const Vec direction = fma(rest1, g, beta1 * moment);
    const Vec mean = fma(rest2, g, beta2 * moment), next = fnma(step, sign(direction), fnma(decay, old, old));
    store(m + i, mean, lanes);
    store(w + i, next, lanes);
    check.see(next, as_stored(m, mean), lanes);
  });
  return check.passed();
}

}  // namespace

extern const UpdateKernels lion_f32 = {update<float>, update<bf16>};

}  // namespace mudd::MUDD_ISA
