// Compiled once for each ISA level, with its Vec; see regularized_loss.h for the contract.
#include "mudd/ops/cross_entropy/row_softmax-inl.h"
#include "mudd/ops/regularized_loss/regularized_loss.h"

namespace mudd::MUDD_ISA {
namespace {

// Return the sum of x - largest over a row.
double row_below(const float* x, int64_t n, float largest) {
  const Vec shift = Vec::set1(largest);
  double total = 0;
  for (int64_t begin = 0; begin < n; begin += kRowBlock) {
    const int64_t count = n - begin < kRowBlock ? n - begin : kRowBlock;
    const Vec sum = row_sum(count, [&](int64_t v, int lanes, Vec s) {
      return s + first_lanes(load(x + begin + v, lanes) - shift, lanes);
    });
    total += static_cast<double>(sum.sum());
  }
  return total;
}

template <bool Store>
void statistics(int64_t vocabulary, float* logits, int32_t target, RowSoftmax* stats, double* below) {
  start_row(logits, vocabulary, target, stats);
  if (below) *below = row_below(logits, vocabulary, stats->max);
  finish_row(row_exp<Store>(logits, vocabulary, stats->max), stats);
}

void fwd(int64_t vocabulary, const float* logits, int32_t target, RowSoftmax* stats, double* below) {
  statistics<false>(vocabulary, const_cast<float*>(logits), target, stats, below);
}

void bwd(int64_t vocabulary, float* x, int32_t target, float scale, float uniform, float truth) {
  const Vec factor = Vec::set1(scale), minus = Vec::set1(uniform);
  over_row(vocabulary, [&](int64_t v, int lanes) { store(x + v, load(x + v, lanes) * factor - minus, lanes); });
  x[target] -= truth;
}

}  // namespace

const RegularizedLossKernels regularized_loss_f32 = {fwd, statistics<true>, bwd};

}  // namespace mudd::MUDD_ISA
