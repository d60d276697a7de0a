// The sums over a row of logits, for the kernels of cross_entropy and of the ops that derive from it.
// Included by kernels only.
#pragma once

#include "mudd/base/simd/math.h"
#include "mudd/base/simd/rows.h"
#include "mudd/ops/cross_entropy/cross_entropy.h"

namespace mudd::MUDD_ISA {

constexpr int64_t kRowBlock = 2048;  // columns whose exponentials are summed in fp32
constexpr int kMaxChains = 4;        // independent partial results: one chain would wait for the latency of an add
constexpr int64_t kRowStep = kSumChains * kSumLanes;

// NaN: either operand may win the comparison, because exp(NaN - max) makes the sum NaN.
inline float row_max(const float* x, int64_t n) {
  Vec m[kMaxChains];
  for (Vec& v : m) v = Vec::set1(-__builtin_inff());
  int64_t v = 0;
  for (; v + kMaxChains * Vec::kLanes <= n; v += kMaxChains * Vec::kLanes)
    for (int i = 0; i < kMaxChains; ++i) m[i] = max(m[i], Vec::load(x + v + i * Vec::kLanes));
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
inline float single_columns(float* x, int64_t n, Vec shift) {
  float sum = 0;
  over_row(n, [&](int64_t v, int lanes) {
    float piece[Vec::kLanes];
    exponentials<Store>(x + v, lanes, shift).store(piece);
    for (int i = 0; i < lanes; ++i) sum += piece[i];
  });
  return sum;
}

// Return the sum of exp(x - max), by whole groups of row_sum and then single columns; Store: the exponentials
// replace x.
template <bool Store>
inline double row_exp(float* x, int64_t n, float largest) {
  const Vec shift = Vec::set1(largest);
  double total = 0;
  for (int64_t begin = 0; begin < n; begin += kRowBlock) {
    float* block = x + begin;
    const int64_t count = n - begin < kRowBlock ? n - begin : kRowBlock, whole = count / kRowStep * kRowStep;
    const Vec sum = row_sum<kFewChains>(
        whole, [&](int64_t v, int lanes, Vec s) { return s + exponentials<Store>(block + v, lanes, shift); });
    total += static_cast<double>(sum.sum()) +
             static_cast<double>(single_columns<Store>(block + whole, count - whole, shift));
  }
  return total;
}

inline void scale_row(float* x, int64_t n, float by) {
  const Vec factor = Vec::set1(by);
  over_row(n, [&](int64_t v, int lanes) { store(x + v, load(x + v, lanes) * factor, lanes); });
}

// Check columns before the target only if its logit is a largest one.
inline void start_row(const float* row, int64_t vocabulary, int32_t target, RowSoftmax* stats) {
  stats->target = row[target];
  stats->max = row_max(row, vocabulary);
  stats->guessed = stats->target == stats->max && (target == 0 || row_max(row, target) < stats->max);
}

inline void finish_row(double sum, RowSoftmax* stats) {
  stats->sum = sum;
  stats->guessed = stats->guessed && sum == sum;
}

}  // namespace mudd::MUDD_ISA
