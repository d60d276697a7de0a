// Built once per level over Vec; see sgd.h for the contract and the order of roundings.
#include "mudd/ops/sgd/sgd.h"
#include "mudd/train/update-inl.h"

namespace mudd::MUDD_ISA {
namespace {

template <class Moment>
void update(int64_t n, float* w, Moment* m, float*, const float* const* grads, int n_grads,
            const UpdateFactors& f) {
  const Vec momentum = Vec::set1(f.beta1), decay = Vec::set1(f.decay), step = Vec::set1(f.step_size);
  over_gradient(n, grads, n_grads, f.grad_scale, [&](int64_t i, int lanes, Vec g) {
    const Vec old = load(w + i, lanes), moment = fma(momentum, load(m + i, lanes), g);
    store(m + i, moment, lanes);
    store(w + i, fnma(step, fma(momentum, moment, g), fnma(decay, old, old)), lanes);
  });
}

}  // namespace

const UpdateKernels sgd_f32 = {update<float>, update<bf16>};

}  // namespace mudd::MUDD_ISA
