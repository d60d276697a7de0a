// An optimizer with one moment as a node: one update on arrays, for notebooks and tests.
#pragma once

#include <memory>

#include "mudd/base/kernel_table.h"
#include "mudd/graph/node.h"
#include "mudd/optim/update.h"

namespace mudd {

// What backward multiplies the gradients of the new weights (dy) and of the new moment (dm) with.
struct UpdateSlopes {
  float w = 1;                                   // dw = w dy
  float gradient = 0, gradient_from_moment = 0;  // dgradient = gradient dy + gradient_from_moment dm
  float moment = 0, moment_from_moment = 0;      // dmoment, the same
};

// Inputs w, gradient, moment (fp32, one shape); outputs new w, new moment.
std::unique_ptr<Node> make_update_node(const char* op, std::span<const KernelRow<UpdateKernels>> rows,
                                       const UpdateFactors& factors, const UpdateSlopes& slopes);

}  // namespace mudd
