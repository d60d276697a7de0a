#include "mudd/ops/gemm/sink_gradient.h"

#include <array>

#include "mudd/base/check.h"
#include "mudd/ops/gemm/gemm.h"

namespace mudd {

void sink_gradient(const char* op, const Tensor& left, const Tensor& right, const Shards& shards,
                   const GradSink& sink, float* scratch, int64_t scratch_bytes, DType compute) {
  check(shards.count() <= kMaxShards, op, "shards: expected at most ", kMaxShards, ", got ", shards.count());
  std::array<int64_t, kMaxShards + 1> cuts;
  for (int s = 0; s <= shards.count(); ++s) cuts[static_cast<size_t>(s)] = shards.row_begin(s, left.rows);
  GradBlock g{.x = left.cells(), .ldx = left.stride, .dy = right.cells(), .ldy = right.stride};
  g.cuts = cuts.data();
  g.shards = shards.count();
  g.m = left.cols;
  g.n = g.ldo = right.cols;
  g.out = sink.out;
  g.add = sink.add.data();
  g.n_add = sink.n_add;
  g.scratch = scratch;
  g.scratch_bytes = scratch_bytes;
  g.compute = compute;
  weight_gradient(g);
}

}  // namespace mudd
