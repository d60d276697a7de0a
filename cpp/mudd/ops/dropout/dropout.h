// dropout: y[b,t,d] = residual[b,t,d] + m x[b,t,d] / (1 - rate), m one with probability 1 - rate, else zero
// (Srivastava et al. 2014; base/dropout.h has the draws: position t, element d).
//
// Inputs: x_BTD fp32 or bf16, residual_BTD (optional). Output: y_BTD; it may share memory with the residual,
// else with x. Active only if the gradient of x is requested: otherwise m is one and nothing is scaled. Saved:
// nothing; backward draws again: dx = m dy / (1 - rate), dresidual = dy (the executor passes it on).
#pragma once

#include <cstdint>

#include "mudd/base/dropout.h"
#include "mudd/base/kernel_table.h"

namespace mudd {

struct DropoutRows {
  int64_t begin = 0, end = 0, cols = 0;
  int64_t time = 1;  // rows of a sample
  const float* x = nullptr;
  int64_t x_stride = 0;
  const float* base = nullptr;  // null: zeros
  int64_t base_stride = 0;
  float* y = nullptr;
  int64_t y_stride = 0;
};

struct DropoutKernels {
  // Compute y = base + factor x on rows [begin, end); y may be x or base.
  void (*apply)(const Dropout& draws, const DropoutRows& rows);
};

MUDD_DECLARE_KERNELS(DropoutKernels, dropout_f32)

std::span<const KernelRow<DropoutKernels>> dropout_rows();

}  // namespace mudd
