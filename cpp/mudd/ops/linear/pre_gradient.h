// The backward pass of act(sum + bias) after a GEMM in a node: the gradients of the sum and of the bias.
#pragma once

#include "mudd/base/activation.h"
#include "mudd/graph/node.h"

namespace mudd {

struct PreGradient {
  Tensor dy = {};
  Tensor pre = {}, dpre = {};  // sum + bias [R, N] and its gradient; empty without an activation: dpre is dy
  Activation activation = Activation::none;
  bool pre_is_slope = false;  // pre contains act'(sum + bias) already
};

// Compute dpre = dy act'(pre), and dbias, if requested, as the sum of dpre over rows. partials: scratch of
// RowSums for [R, N], unused without dbias.
void make_pre_gradient(const PreGradient& g, const Shards& shards, const GradSink& dbias, float* partials);

}  // namespace mudd
