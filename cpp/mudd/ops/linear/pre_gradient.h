// Backward of what follows a GEMM in a node, act(sum + bias): the gradients of the sum and of the bias.
#pragma once

#include "mudd/base/activation.h"
#include "mudd/graph/node.h"

namespace mudd {

struct PreGradient {
  Tensor dy = {};
  Tensor pre = {}, dpre = {};  // sum + bias [R, N] and its gradient; empty without an activation: dpre is dy
  Activation activation = Activation::none;
  bool pre_is_slope = false;  // pre holds act'(sum + bias) by now
};

// dpre = dy act'(pre); dbias, where it has a place, is the sum of dpre over rows. partials: scratch of RowSums for
// [R, N], not read without a place for dbias.
void make_pre_gradient(const PreGradient& g, const Shards& shards, const GradSink& dbias, float* partials);

}  // namespace mudd
