// Compiled once for each ISA level, with its Vec; see add.h for the contract.
#include "mudd/base/simd/rows.h"
#include "mudd/ops/add/add.h"

namespace mudd::MUDD_ISA {
namespace {

void add(int64_t begin, int64_t end, int64_t cols, const float* a, int64_t a_stride, const float* b,
         int64_t b_stride, float* y, int64_t y_stride) {
  for (int64_t r = begin; r < end; ++r)
    over_row(cols, [&](int64_t c, int n) {
      store(y + r * y_stride + c, load(a + r * a_stride + c, n) + load(b + r * b_stride + c, n), n);
    });
}

}  // namespace

const AddKernels add_f32 = {add};

}  // namespace mudd::MUDD_ISA
