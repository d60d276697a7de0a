// An elementwise optimizer as a node: one update on arrays, for notebooks and tests.
#pragma once

#include <array>
#include <functional>
#include <memory>

#include "mudd/base/kernel_table.h"
#include "mudd/graph/node.h"
#include "mudd/optim/update.h"

namespace mudd {

// One element in backward: the inputs other than w, and the output gradients (0 for an absent one).
struct UpdateElement {
  float gradient = 0, first = 0, second = 0;
  float dw = 0, dfirst = 0, dsecond = 0;
};

// The gradients of w, gradient, first and second, each as two terms that are added in this order.
using UpdateGradients = std::array<std::array<float, 2>, 2 + kMaxMoments>;

// The gradients if the new w and moment are linear in the inputs: the factors of (dw, dfirst), by input.
using UpdateSlopes = std::array<std::array<float, 2>, 3>;

struct UpdateNodeParts {
  const char* op = "";
  std::span<const KernelRow<UpdateKernels>> rows = {};
  int moments = 1;
  UpdateFactors factors = {};
  bool backward_reads_inputs = false;  // otherwise an UpdateElement only has the gradients of the outputs
  std::function<UpdateGradients(const UpdateElement&)> backward = {};
};

std::function<UpdateGradients(const UpdateElement&)> linear_backward(const UpdateSlopes& slopes);

// Create a node with inputs w, gradient and the moments (fp32, one shape); outputs the new w and the new
// moments.
std::unique_ptr<Node> make_update_node(UpdateNodeParts parts);

}  // namespace mudd
