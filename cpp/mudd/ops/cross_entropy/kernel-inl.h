// Compiled once for each ISA level, with its Vec (base/simd/vec.h); see cross_entropy.h for the contract.
#include "mudd/base/simd/math.h"
#include "mudd/base/simd/rows.h"
#include "mudd/ops/cross_entropy/cross_entropy.h"

namespace mudd::MUDD_ISA {
namespace {

constexpr int64_t kBlock = 2048;  // columns whose exponentials are summed in fp32
constexpr int kChains = 4;        // independent partial results: one chain would wait for the latency of an add
constexpr int64_t kStep = kSumChains * kSumLanes;
constexpr int kLanes = Vec::kLanes;

// NaN: either operand may win the comparison, because exp(NaN - max) makes the sum NaN.
float row_max(const float* x, int64_t n) {
  Vec m[kChains];
  for (Vec& v : m) v = Vec::set1(-__builtin_inff());
  int64_t v = 0;
  for (; v + kChains * kLanes <= n; v += kChains * kLanes)
    for (int i = 0; i < kChains; ++i) m[i] = max(m[i], Vec::load(x + v + i * kLanes));
  float rest = -__builtin_inff();
  for (; v < n; ++v) rest = x[v] > rest ? x[v] : rest;
  const float most = max(max(m[0], m[1]), max(m[2], m[3])).max_lane();
  return most > rest ? most : rest;
}

// Return the exponential of `lanes` columns from x; Store: it replaces x.
template <bool Store>
inline Vec exponentials(float* x, int lanes, Vec shift) {
  const Vec e = exp_nonpositive(load(x, lanes) - shift);
  if constexpr (Store) store(x, e, lanes);
  return e;
}

// Return the sum of exp(x - shift) over n columns, one after another.
template <bool Store>
float single_columns(float* x, int64_t n, Vec shift) {
  float sum = 0;
  over_row(n, [&](int64_t v, int lanes) {
    float piece[kLanes];
    exponentials<Store>(x + v, lanes, shift).store(piece);
    for (int i = 0; i < lanes; ++i) sum += piece[i];
  });
  return sum;
}

// Return the sum of exp(x - max), by whole groups of row_sum and then single columns; Store: the exponentials
// replace x.
template <bool Store>
double row_exp(float* x, int64_t n, float largest) {
  const Vec shift = Vec::set1(largest);
  double total = 0;
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    float* block = x + begin;
    const int64_t count = n - begin < kBlock ? n - begin : kBlock, whole = count / kStep * kStep;
    const Vec sum = row_sum<kFewChains>(
        whole, [&](int64_t v, int lanes, Vec s) { return s + exponentials<Store>(block + v, lanes, shift); });
    total += static_cast<double>(sum.sum()) +
             static_cast<double>(single_columns<Store>(block + whole, count - whole, shift));
  }
  return total;
}

void scale_row(float* x, int64_t n, float by) {
  const Vec factor = Vec::set1(by);
  over_row(n, [&](int64_t v, int lanes) { store(x + v, load(x + v, lanes) * factor, lanes); });
}

// Check columns before the target only if its logit is a largest one.
void start_row(const float* row, int64_t vocabulary, int32_t target, RowSoftmax* stats) {
  stats->target = row[target];
  stats->max = row_max(row, vocabulary);
  stats->guessed = stats->target == stats->max && (target == 0 || row_max(row, target) < stats->max);
}

void finish_row(double sum, RowSoftmax* stats) {
  stats->sum = sum;
  stats->guessed = stats->guessed && sum == sum;
}

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
