// mc.custom(forward, backward): two NumPy functions as a node, for either executor.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <vector>

#include "mudd/graph/node.h"

namespace mudd::bind {

// forward(*inputs) -> array or tuple of arrays (float32). backward(dout..., *inputs) -> tuple, one gradient per
// input (None for inputs without). One call on zeros finds the output shapes when the node is created. If first
// axes are the samples, the functions are called once for each logical shard, and the gradients of weights are
// added by the tree over shards (contracts 2). whole: inputs that are never split, in addition to parameters.
std::unique_ptr<Node> custom_node(pybind11::object forward, pybind11::object backward,
                                  std::vector<bool> whole = {});

}  // namespace mudd::bind
