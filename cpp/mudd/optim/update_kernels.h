// The common interface of the elementwise optimizers' kernels.
#pragma once

#include <cstdint>

#include "mudd/base/types.h"

namespace mudd {

// The rounded scalars of an elementwise update; each optimizer reads some of them.
struct UpdateFactors {
  float grad_scale = 1, beta1 = 0, one_minus_beta1 = 1, beta2 = 0, one_minus_beta2 = 1, momentum = 0;
  float decay = 0, step_size = 0, root_scale = 1, eps = 0, eps_root = 0;
  bool nesterov = true;
  int32_t offset = 0;  // of the bits of a second moment before it is cut to bf16, 0 to 65535
};

// Update n contiguous elements; optimizers with one moment ignore v. Return false if a written value is not
// finite.
struct UpdateKernels {
  bool (*update)(int64_t n, float* w, float* m, float* v, const float* const* grads, int n_grads,
                 const UpdateFactors& factors);
  bool (*update_bf16)(int64_t n, float* w, bf16* m, float* v, const float* const* grads, int n_grads,
                      const UpdateFactors& factors);
  // The same with a second moment in bf16; null for an optimizer without this form.
  bool (*update_second)(int64_t n, float* w, float* m, bf16* v, const float* const* grads, int n_grads,
                        const UpdateFactors& factors) = nullptr;
  bool (*update_both)(int64_t n, float* w, bf16* m, bf16* v, const float* const* grads, int n_grads,
                      const UpdateFactors& factors) = nullptr;
  // Add the squares of a row of the scaled gradient to columns[0, n) and return their sum; null for an optimizer
  // without factors.
  float (*squares)(int64_t n, const float* const* grads, int n_grads, float grad_scale, float* columns) = nullptr;
};

}  // namespace mudd
