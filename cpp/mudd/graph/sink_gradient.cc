#include "mudd/graph/sink_gradient.h"

#include "mudd/base/check.h"

namespace mudd {

SinkGradient::SinkGradient(const char* op, const Tensor& left, const Tensor& right, const Shards& shards,
                           const GradSink& sink, float* scratch, int64_t scratch_bytes, DType compute) {
  check(shards.count() <= kMaxShards, op, "shards: expected at most ", kMaxShards, ", got ", shards.count());
  for (int s = 0; s <= shards.count(); ++s) cuts[static_cast<size_t>(s)] = shards.row_begin(s, left.rows);
  block.x = left.cells();
  block.ldx = left.stride;
  block.dy = right.cells();
  block.ldy = right.stride;
  block.cuts = cuts.data();
  block.shards = shards.count();
  block.m = left.cols;
  block.n = block.ldo = right.cols;
  block.out = sink.out;
  block.add = sink.add.data();
  block.n_add = sink.n_add;
  block.scratch = scratch;
  block.scratch_bytes = scratch_bytes;
  block.compute = compute;
}

}  // namespace mudd
