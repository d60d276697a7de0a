// What the optimizers share: their kernels' signature (optim/adamw, optim/lion, optim/sgd) and the one sweep over
// all parameters that clips, updates and repacks. The header in each folder has its formula.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "mudd/base/row_gradient.h"
#include "mudd/base/types.h"

namespace mudd {

constexpr int kMaxGradientUses = 4;

// adam_pax of the MUDDFormer code is adamw: the same arithmetic (docs/maths/optimizers.md, 2).
enum class Optimizer : uint8_t { adamw, lion, sgd };
Optimizer parse_optimizer(const std::string& name);  // "adamw", "adam_pax", "lion", "sgd"
int moments_of(Optimizer optimizer);                 // 2 (first and second), or 1 (first)

// A parameter as a stored matrix [rows, cols], contiguous ([1, n] for vectors).
struct UpdateParameter {
  int64_t rows = 0, cols = 0;
  float* w = nullptr;
  const float* grads[kMaxGradientUses] = {};            // planes added in order; n_grads of them
  const RowGradient* grad_rows[kMaxGradientUses] = {};  // a plane that is given by its rows; null: grads[i]
  int n_grads = 0;
  void* m = nullptr;                  // first moment, of the type given to update_step
  float* v = nullptr;                 // second moment; null where there is none
  void* packed_plain = nullptr;       // panels of W (see gemm.h), refreshed from the new w; null: none kept
  void* packed_transposed = nullptr;  // panels of W^T
  DType packed = DType::f32;          // compute type that the panels are for
  double lr = 0;                      // learning rate times the parameter's lr_scale
  double decay = 0;                   // fraction of w that is removed: see ParamStore's decay modes
  double eps = 1e-8;                  // eps times the parameter's eps_scale
  int64_t first_task = 0;             // written by update_step
};

struct UpdateScalars {
  double beta1 = 0.9, beta2 = 0.95;                   // sgd: beta1 is the momentum
  double bias_correction1 = 1, bias_correction2 = 1;  // bias_correction(beta, t), of adamw
  double grad_scale = 1;                              // clipping and one over the loss denominator
};

// 1 - beta^t for the t-th update, t from 1, without libm.
double bias_correction(double beta, int64_t t);

// The rounded scalars of one parameter.
struct UpdateFactors {
  float grad_scale, beta1, one_minus_beta1, beta2, one_minus_beta2, decay, step_size, root_scale, eps;
};

UpdateFactors update_factors(Optimizer optimizer, const UpdateParameter& parameter, const UpdateScalars& scalars);

// n contiguous elements; v is not touched by optimizers with one moment. False: a number that was written is not
// finite.
struct UpdateKernels {
  bool (*update)(int64_t n, float* w, float* m, float* v, const float* const* grads, int n_grads,
                 const UpdateFactors& factors);
  bool (*update_bf16)(int64_t n, float* w, bf16* m, float* v, const float* const* grads, int n_grads,
                      const UpdateFactors& factors);
};

// Updates every parameter; moment: type of the first moment, f32 or bf16. Memory: reads w, the moments and g,
// writes w, the moments and the packed copies once each. Bits do not depend on the thread count. Allocates
// nothing. False: a weight or moment that was written is not finite (all are written all the same).
bool update_step(Optimizer optimizer, DType moment, std::span<UpdateParameter> parameters,
                 const UpdateScalars& scalars);

}  // namespace mudd
