// Graph: the record of a model function. Values (inputs, parameters, results) and nodes are in call order,
// which is also the order of execution; backward runs in the reverse order. No memory here: see planner.h.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "mudd/graph/node.h"

namespace mudd {

using ValueId = int;
constexpr ValueId kAbsent = -1;  // an absent optional input

enum class ValueKind : uint8_t { input, parameter, result };

struct Value {
  TensorSpec spec;
  ValueKind kind = ValueKind::result;
  std::string name;   // of inputs and parameters; "<label>.<i>" for results
  int slot = -1;      // input: position in Graph::inputs(); parameter: index in the ParamStore
  int producer = -1;  // result: node index
  int output = -1;    // result: which output of the producer
  bool wants_gradient = false;
  bool external = false;  // input with memory of the caller (a KV cache), not in the arena
  bool gathered = false;  // parameter that graphs gather from its owners, and its type there
  DType stored = DType::f32;
  bool packed_at_use = false;  // parameter without a kept packed copy
};

struct GraphNode {
  std::unique_ptr<Node> node;
  std::string label;  // "blocks.3.attn.norm:rms_norm"
  std::vector<ValueId> inputs, outputs;
  Inference needs;                 // the result of infer()
  std::vector<int> parameter_use;  // per input: index of this use of its parameter (0, 1, ...), -1 for others
};

class Graph {
 public:
  // training: compute gradients of parameters; shards: the split of the samples of one run; compute: f32 or
  // bf16, see Inference::compute; expert_ranks, expert_room: see Inference.
  Graph(bool training, Shards shards, DType compute = DType::f32, int expert_ranks = 1, double expert_room = 0);

  ValueId input(const std::string& name, TensorSpec spec, bool external = false);
  // Add a use of a parameter, which may have several; `slot` is its index in the ParamStore. gathered: graphs
  // gather it from its owners, which store it in the type `stored`. packed_at_use: no packed copy of it is
  // kept.
  ValueId parameter(const std::string& name, TensorSpec spec, int slot, bool trainable, bool gathered = false,
                    DType stored = DType::f32, bool packed_at_use = false);
  std::vector<ValueId> apply(const std::string& op, const Attributes& attributes,
                             const std::vector<ValueId>& inputs, const std::string& label);
  std::vector<ValueId> apply(std::unique_ptr<Node> node, const std::vector<ValueId>& inputs,
                             const std::string& label);

  bool training() const { return training_; }
  DType compute() const { return compute_; }
  const Shards& shards() const { return shards_; }
  const std::vector<Value>& values() const { return values_; }
  std::vector<GraphNode>& nodes() { return nodes_; }
  const std::vector<GraphNode>& nodes() const { return nodes_; }
  const std::vector<ValueId>& inputs() const { return inputs_; }
  std::string text() const;  // one line a node

 private:
  ValueId add(Value value);

  bool training_;
  Shards shards_;
  DType compute_;
  int expert_ranks_;
  double expert_room_;
  std::vector<Value> values_;
  std::vector<int> uses_;            // per value: its count of uses as an input so far
  std::vector<ValueId> parameters_;  // per slot; kAbsent: not of this graph
  std::vector<GraphNode> nodes_;
  std::vector<ValueId> inputs_;
};

}  // namespace mudd
