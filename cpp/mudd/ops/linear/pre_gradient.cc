#include "mudd/ops/linear/pre_gradient.h"

#include "mudd/base/parallel.h"
#include "mudd/graph/row_sums.h"
#include "mudd/kernels/convert/wide_rows.h"
#include "mudd/ops/linear/linear.h"

namespace mudd {

void make_pre_gradient(const PreGradient& g, const Shards& shards, const GradSink& dbias, float* partials) {
  if (!g.dpre && !dbias) return;
  static const LinearKernels& kernels = choose(linear_rows());
  const int64_t width = g.dy.cols;
  const RowSums sums(shards, g.dy.rows, width);
  parallel_for(sums.blocks(), [&](int64_t task, int) {
    int64_t begin = 0, end = 0;
    sums.range(task, &begin, &end);
    const WideRows at(g.pre, begin, end), from(g.dy, begin, end);
    const NarrowRows to(g.dpre, begin, end);
    kernels.bwd(begin, end, width, g.activation, at.base(), g.pre_is_slope, from.base(), from.stride(), to.base(),
                dbias ? sums.partial(partials, task) : nullptr);
  });
  if (dbias) sums.finish(partials, dbias);
}

}  // namespace mudd
