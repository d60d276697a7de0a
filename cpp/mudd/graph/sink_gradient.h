// The gradient of a weight-like input of a node, from the tensors and the sink of its backward.
#pragma once

#include <array>

#include "mudd/graph/node.h"
#include "mudd/kernels/gemm/gemm.h"

namespace mudd {

// sink = left^T right [left.cols, right.cols], with rows summed by shards, plus the adds of the sink. scratch:
// scratch_bytes bytes, the planned grad_scratch_bytes (for `compute`). `op` names the node in messages.
struct SinkGradient {
  std::array<int64_t, kMaxShards + 1> cuts;
  GradBlock block;

  SinkGradient(const char* op, const Tensor& left, const Tensor& right, const Shards& shards, const GradSink& sink,
               float* scratch, int64_t scratch_bytes, DType compute = DType::f32);
  SinkGradient(const SinkGradient&) = delete;  // the block points at the cuts
  SinkGradient& operator=(const SinkGradient&) = delete;
};

}  // namespace mudd
