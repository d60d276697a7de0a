// Compiled once for each ISA level, with its Vec; see adamw.h for the contract and the order of roundings.
#include "mudd/optim/update-inl.h"

namespace mudd::MUDD_ISA {
namespace {

template <class Moment, class Second>
bool update(int64_t n, float* w, Moment* m, Second* v, const float* const* grads, int n_grads,
            const UpdateFactors& f) {
  const Vec beta1 = Vec::set1(f.beta1), rest1 = Vec::set1(f.one_minus_beta1);
  const Vec beta2 = Vec::set1(f.beta2), rest2 = Vec::set1(f.one_minus_beta2), decay = Vec::set1(f.decay);
  const Vec step = Vec::set1(f.step_size), root = Vec::set1(f.root_scale), eps = Vec::set1(f.eps);
  const Vec below = Vec::set1(f.eps_root);
  FiniteCheck check;
  over_gradient(n, grads, n_grads, f.grad_scale, [&](int64_t i, int lanes, Vec g) {
    const Vec mean = fma(rest1, g, beta1 * load(m + i, lanes));
    const Vec square = fma(rest2 * g, g, beta2 * load(v + i, lanes));
    const Vec kept = second_as_stored(v, square, f.offset);
    store(m + i, mean, lanes);
    store(v + i, kept, lanes);
    const Vec old = load(w + i, lanes);
    const Vec decayed = fnma(decay, old, old);
    const Vec next = fnma(step, mean / fma(sqrt(square + below), root, eps), decayed);
    store(w + i, next, lanes);
    check.see(next, as_stored(m, mean), kept, lanes);
  });
  return check.passed();
}

// One multiplication and two additions for each element; the sum has the sixteen lanes of row_sum.
float squares(int64_t n, const float* const* grads, int n_grads, float grad_scale, float* columns) {
  const Vec scale = Vec::set1(grad_scale);
  const Vec total = row_sum(n, [&](int64_t i, int lanes, Vec sum) {
    Vec g = load(grads[0] + i, lanes);
    for (int p = 1; p < n_grads; ++p) g = g + load(grads[p] + i, lanes);
    g = g * scale;
    const Vec square = g * g;
    store(columns + i, load(columns + i, lanes) + square, lanes);
    return sum + square;
  });
  return total.sum();
}

}  // namespace

extern const UpdateKernels adamw_f32 = {update<float, float>, update<bf16, float>, update<float, bf16>,
                                        update<bf16, bf16>, squares};

}  // namespace mudd::MUDD_ISA
