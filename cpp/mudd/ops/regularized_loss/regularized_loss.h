// regularized_loss: cross_entropy with label smoothing (Szegedy et al. 2016) and a z-loss on the logits
// (Chowdhery et al. 2022, PaLM, section 5).
//   loss[r] = -sum_v q[v] log softmax(logits[r])[v] + z lse[r]^2,   q[v] = (1 - e) (v == target[r]) + e / V
//
// lse[r] = log sum_v exp(logits[r,v]), e = label_smoothing. As the q of a row add up to 1:
//   loss[r] = lse - (1 - e) logits[r,target] - e / V sum_v logits[r,v] + z lse^2
//   dlogits[r,v] = (1 + 2 z lse) softmax[r,v] - q[v]
//
// Inputs: h, head, targets and bias as in cross_entropy. Outputs: as in cross_entropy, but 0 is the regularized
// loss, and 3 is the plain cross entropy, sums f64 [S]. Output 0 alone has gradients. With e = 0 and z = 0 all
// bits are equal to cross_entropy.
//
// Logits are summed as differences from the largest one, in the blocks and lanes of the exponentials, blocks in
// double: no large values cancel. Chunks, orders of sums and ways to run are the same as in cross_entropy.
#pragma once

#include <cstdint>

#include "mudd/base/kernel_table.h"
#include "mudd/ops/cross_entropy/cross_entropy.h"

namespace mudd {

struct RegularizedLossKernels {
  // Compute the statistics of a row of logits, and the sum of logit - max unless `below` is null.
  void (*fwd)(int64_t vocabulary, const float* logits, int32_t target, RowSoftmax* stats, double* below);
  // The same, and replace the logits by exp(logit - max).
  void (*exponentials)(int64_t vocabulary, float* logits, int32_t target, RowSoftmax* stats, double* below);
  // Replace these exponentials x by scale x - uniform, and subtract `truth` at the target.
  void (*bwd)(int64_t vocabulary, float* x, int32_t target, float scale, float uniform, float truth);
};

MUDD_DECLARE_KERNELS(RegularizedLossKernels, regularized_loss_f32)

std::span<const KernelRow<RegularizedLossKernels>> regularized_loss_rows();

}  // namespace mudd
