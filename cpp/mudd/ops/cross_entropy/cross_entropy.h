// cross_entropy: unembedding, softmax and loss in one op that never stores all logits.
//   logits[r,v] = sum_d h[r,d] head[v,d] (+ bias[v]),   loss[r] = log sum_v exp(logits[r,v]) - logits[r,
//   target[r]]
//
// Inputs: h fp32 [B, T, D], head_VD fp32 (weight-like; the embedding when tied), targets i32 [B, T] (negative
// ones are ignored, one >= V is an error that names it), bias_V fp32 (optional, weight-like). Outputs: 0 loss
// sums f64 [S] in nats, 1 counts f64 [S] of the targets that are not ignored, one value per shard (contracts 3:
// sums, never means), 2 fp32 [B, 2]: the count of guessed targets of a sample, and the same divided by the
// sample's targets (0 without any). With by_sample it is fp32 [B, 4]: also the loss and the count of targets of
// the sample. A target is guessed if it is the first of the largest logits of its row; none is in a row whose
// softmax is NaN. Saved: nothing. Gradients are gradients of the sums, scaled by
// dout(0)[s] in shard s (1 if absent):
//   dlogits[r,v] = softmax[r,v] - (v == target[r]),  dh = dlogits head,  dhead = dlogits^T h,  dbias = sum of
//   dlogits.
//
// A row with an ignored target costs nothing: logits, softmax and both gradients are computed for the other
// rows only, in their order. Its row of dh is zero.
//
// Two ways to run, equal in every bit:
//   evaluation, immediate: forward() walks chunks of tokens for the loss, backward() computes the logits again;
//   planned training: forward() is skipped, backward() also writes the outputs (computes_in_backward).
// Orders: logits and dh one chain each (gemm.h); the exponentials of a row are summed in fixed blocks, the blocks
// in double; losses in row order in double; dhead one chain over the counted rows of a shard, then the balanced
// tree over shards, then the adds of the sink; dbias the same. Nothing depends on the size of the chunks.
// bf16: logits are fp32, a few rows at a time; dlogits wait for the GEMMs, whose operands they are, in bf16.
#pragma once

#include <cstdint>

#include "mudd/base/kernel_table.h"

namespace mudd {

// The parts of a row's loss, log(sum) + max - target, and whether its target is guessed.
struct RowSoftmax {
  double sum = 0;    // of exp(logit - max)
  float max = 0;     // largest logit
  float target = 0;  // logit of the target
  bool guessed = false;
};

struct CrossEntropyKernels {
  // Compute row statistics of rows x vocabulary logits, `stride` apart; every target is one of the columns.
  void (*fwd)(int64_t rows, int64_t vocabulary, const float* logits, int64_t stride, const int32_t* targets,
              RowSoftmax* stats);
  // The same, and replace the logits by weight * dlogits.
  void (*bwd)(int64_t rows, int64_t vocabulary, float* logits, int64_t stride, const int32_t* targets,
              float weight, RowSoftmax* stats);
};

MUDD_DECLARE_KERNELS(CrossEntropyKernels, cross_entropy_f32)

std::span<const KernelRow<CrossEntropyKernels>> cross_entropy_rows();

}  // namespace mudd
