// Compiled once for each ISA level, with its Vec (base/simd/vec.h); see embedding.h for the contract.
#include "mudd/base/simd/rows.h"
#include "mudd/ops/embedding/embedding.h"

namespace mudd::MUDD_ISA {
namespace {

void fwd(int64_t begin, int64_t end, int64_t d_model, const int32_t* ids, const float* table, int64_t table_stride,
         float scale, const float* residual, int64_t residual_stride, float* y, int64_t y_stride) {
  const Vec factor = Vec::set1(scale);
  for (int64_t r = begin; r < end; ++r) {
    const float* row = table + ids[r] * table_stride;
    const float* xr = residual ? residual + r * residual_stride : nullptr;
    float* yr = y + r * y_stride;
    over_row(d_model, [&](int64_t d, int n) {
      const Vec v = load(row + d, n) * factor;
      store(yr + d, xr ? load(xr + d, n) + v : v, n);
    });
  }
}

}  // namespace

const EmbeddingKernels embedding_f32 = {fwd};

}  // namespace mudd::MUDD_ISA
