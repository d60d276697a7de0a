// Immediate: runs one node at once on memory of the caller. The tape that connects calls is in Python
// (mudd_core/tape.py). Order and arithmetic are the same as in the planned executor, so the bits are equal.
#pragma once

#include <memory>
#include <vector>

#include "mudd/base/arena.h"
#include "mudd/graph/node.h"

namespace mudd {

class ImmediateCall {
 public:
  // Check shapes. wants[i]: backward may be called for input i later. compute: see Graph.
  ImmediateCall(std::unique_ptr<Node> node, std::vector<TensorSpec> inputs, std::vector<bool> wants, Shards shards,
                StepInput step, DType compute = DType::f32);

  // Arrays are fp32 even for a bf16 graph: values that it would store as bf16 are rounded to bf16 values, with
  // the same bits.
  bool rounds_output(int i) const { return stored_bf16(needs_, *node_, i); }

  const std::vector<TensorSpec>& outputs() const { return needs_.outputs_; }
  const Node& node() const { return *node_; }

  // in: one tensor per input (empty: absent); out: memory shaped like outputs().
  void forward(const std::vector<Tensor>& in, const std::vector<Tensor>& out);

  // Run backward, any number of times after forward. din[i] empty: not requested. accumulate[i]: add to din[i].
  // The gradient that the node passes through (Node::passes_gradient) is a copy or an addition of dout[0].
  // round[i]: a graph would store din[i] in bf16.
  void backward(const std::vector<Tensor>& in, const std::vector<Tensor>& out, const std::vector<Tensor>& dout,
                const std::vector<Tensor>& din, const std::vector<bool>& accumulate,
                const std::vector<bool>& round);

 private:
  void check_tokens() const;
  Run bind(const std::vector<Tensor>& in, const std::vector<Tensor>& out);
  void save_again(const std::vector<Tensor>& in);

  std::unique_ptr<Node> node_;
  std::vector<TensorSpec> inputs_;
  Shards shards_;
  StepInput step_;
  Inference needs_;
  std::vector<Arena> saved_;
  bool spent_ = false;  // backward has overwritten the saved bytes of forward
};

}  // namespace mudd
