// Immediate: runs one node at once on memory the caller owns. The tape that strings calls together is in Python
// (mudd_core/tape.py); order and arithmetic are those of the planned executor, so both give the same bits.
#pragma once

#include <memory>
#include <vector>

#include "mudd/base/arena.h"
#include "mudd/graph/node.h"

namespace mudd {

class ImmediateCall {
 public:
  // Shapes are checked here. wants[i]: backward may be called for input i later. compute: as of a graph.
  ImmediateCall(std::unique_ptr<Node> node, std::vector<TensorSpec> inputs, std::vector<bool> wants, Shards shards,
                StepInput step, DType compute = DType::f32);

  // Arrays are fp32 here in bf16 as well: what a graph would store in bf16 is rounded to what bf16 can hold, which
  // gives the same bits.
  bool rounds_output(int i) const { return stored_bf16(needs_, *node_, i); }

  const std::vector<TensorSpec>& outputs() const { return needs_.outputs_; }
  const Node& node() const { return *node_; }

  // in: one tensor per input (empty: absent); out: memory shaped like outputs().
  void forward(const std::vector<Tensor>& in, const std::vector<Tensor>& out);

  // After forward, any number of times. din[i] empty: not wanted. accumulate[i]: add to what din[i] holds. The
  // gradient that the node passes through (Node::passes_gradient) is written by copying or adding dout[0].
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
  bool spent_ = false;  // backward has worked in what forward saved
};

}  // namespace mudd
