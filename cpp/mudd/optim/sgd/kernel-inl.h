// Compiled once for each ISA level, with its Vec; see sgd.cc for the contract and the order of roundings.
#include "mudd/optim/update-inl.h"

namespace mudd::MUDD_ISA {
namespace {

template <class Moment>
bool update(int64_t n, float* w, Moment* m, float*, const float* const* grads, int n_grads,
            const UpdateFactors& f) {
  const Vec momentum = Vec::set1(f.momentum), decay = Vec::set1(f.decay), step = Vec::set1(f.step_size);
  FiniteCheck check;
  over_gradient(n, grads, n_grads, f.grad_scale, [&](int64_t i, int lanes, Vec g) {
    const Vec old = load(w + i, lanes), moment = fma(momentum, load(m + i, lanes), g);
    const Vec direction = f.nesterov ? fma(momentum, moment, g) : moment;
    const Vec next = fnma(step, direction, fnma(decay, old, old));
    store(m + i, moment, lanes);
    store(w + i, next, lanes);
    check.see(next, as_stored(m, moment), lanes);
  });
  return check.passed();
}

}  // namespace

extern const UpdateKernels sgd_f32 = {update<float>, update<bf16>};

}  // namespace mudd::MUDD_ISA
