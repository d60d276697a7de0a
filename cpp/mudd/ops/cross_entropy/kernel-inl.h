// Compiled once for each ISA level, with its Vec (base/simd/vec.h); see cross_entropy.h for the contract.
#include "mudd/ops/cross_entropy/row_softmax-inl.h"

namespace mudd::MUDD_ISA {
namespace {

void fwd(int64_t rows, int64_t vocabulary, const float* logits, int64_t stride, const int32_t* targets,
         RowSoftmax* stats) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* row = logits + r * stride;
    start_row(row, vocabulary, targets[r], stats + r);
    finish_row(row_exp<false>(const_cast<float*>(row), vocabulary, stats[r].max), stats + r);
  }
}

void bwd(int64_t rows, int64_t vocabulary, float* logits, int64_t stride, const int32_t* targets, float weight,
         RowSoftmax* stats) {
  for (int64_t r = 0; r < rows; ++r) {
    float* row = logits + r * stride;
    start_row(row, vocabulary, targets[r], stats + r);
    finish_row(row_exp<true>(row, vocabulary, stats[r].max), stats + r);
    scale_row(row, vocabulary, static_cast<float>(weight / stats[r].sum));
    row[targets[r]] -= weight;
  }
}

}  // namespace

const CrossEntropyKernels cross_entropy_f32 = {fwd, bwd};

}  // namespace mudd::MUDD_ISA
