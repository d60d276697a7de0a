// Built once per level over Vec (base/simd/vec.h); see cross_entropy.h for the contract.
#include "mudd/base/simd/math.h"
#include "mudd/base/simd/vec.h"
#include "mudd/ops/cross_entropy/cross_entropy.h"

namespace mudd::MUDD_ISA {
namespace {

constexpr int64_t kBlock = 2048;  // columns whose exponentials are summed in fp32
constexpr int kChains = 4;        // independent partial results: one chain would wait for the latency of an add

// Calls full(v) for kChains vectors at a time, then piece(v, lanes) for single ones.
template <class Full, class Piece>
inline void over_columns(int64_t begin, int64_t end, Full full, Piece piece) {
  constexpr int64_t kStep = kChains * Vec::kLanes;
  int64_t v = begin;
  for (; v + kStep <= end; v += kStep) full(v);
  for (; v < end; v += Vec::kLanes) piece(v, end - v < Vec::kLanes ? static_cast<int>(end - v) : Vec::kLanes);
}

inline Vec load(const float* p, int n) { return n == Vec::kLanes ? Vec::load(p) : Vec::load_n(p, n); }
inline void store(float* p, Vec v, int n) {
  if (n == Vec::kLanes) v.store(p);
  else v.store_n(p, n);
}

// Which of two values is called larger when one is NaN does not matter: exp(NaN - max) makes the sum NaN.
float row_max(const float* x, int64_t n) {
  constexpr int kLanes = Vec::kLanes;
  Vec m[kChains];
  for (Vec& v : m) v = Vec::set1(-__builtin_inff());
  float rest = -__builtin_inff();
  over_columns(
      0, n,
      [&](int64_t v) {
        for (int i = 0; i < kChains; ++i) m[i] = max(m[i], Vec::load(x + v + i * kLanes));
      },
      [&](int64_t v, int lanes) {
        for (int i = 0; i < lanes; ++i) rest = x[v + i] > rest ? x[v + i] : rest;
      });
  const float most = max(max(m[0], m[1]), max(m[2], m[3])).max_lane();
  return most > rest ? most : rest;
}

// Sum of exp(x - max); Store: the exponentials replace x.
template <bool Store>
double row_exp(float* x, int64_t n, float largest) {
  constexpr int kLanes = Vec::kLanes;
  const Vec shift = Vec::set1(largest);
  double total = 0;
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    Vec sum[kChains];
    for (Vec& v : sum) v = Vec::zero();
    float rest = 0;
    over_columns(
        begin, begin + kBlock < n ? begin + kBlock : n,
        [&](int64_t v) {
          for (int i = 0; i < kChains; ++i) {
            const Vec e = exp_nonpositive(Vec::load(x + v + i * kLanes) - shift);
            if constexpr (Store) e.store(x + v + i * kLanes);
            sum[i] = sum[i] + e;
          }
        },
        [&](int64_t v, int lanes) {
          const Vec e = exp_nonpositive(load(x + v, lanes) - shift);
          if constexpr (Store) store(x + v, e, lanes);
          float piece[kLanes];
          e.store(piece);
          for (int i = 0; i < lanes; ++i) rest += piece[i];
        });
    total += static_cast<double>(((sum[0] + sum[1]) + (sum[2] + sum[3])).sum()) + static_cast<double>(rest);
  }
  return total;
}

void scale_row(float* x, int64_t n, float by) {
  const Vec factor = Vec::set1(by);
  constexpr int kLanes = Vec::kLanes;
  over_columns(
      0, n,
      [&](int64_t v) {
        for (int i = 0; i < kChains; ++i) (Vec::load(x + v + i * kLanes) * factor).store(x + v + i * kLanes);
      },
      [&](int64_t v, int lanes) { store(x + v, load(x + v, lanes) * factor, lanes); });
}

// Columns in front of the target are looked at only where its logit is a largest one.
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
    if (targets[r] < 0) continue;
    const float* row = logits + r * stride;
    start_row(row, vocabulary, targets[r], stats + r);
    finish_row(row_exp<false>(const_cast<float*>(row), vocabulary, stats[r].max), stats + r);
  }
}

void bwd(int64_t rows, int64_t vocabulary, float* logits, int64_t stride, const int32_t* targets, float weight,
         RowSoftmax* stats) {
  for (int64_t r = 0; r < rows; ++r) {
    float* row = logits + r * stride;
    if (targets[r] < 0) {
      for (int64_t v = 0; v < vocabulary; ++v) row[v] = 0.0f;
      continue;
    }
    start_row(row, vocabulary, targets[r], stats + r);
    finish_row(row_exp<true>(row, vocabulary, stats[r].max), stats + r);
    scale_row(row, vocabulary, static_cast<float>(weight / stats[r].sum));
    row[targets[r]] -= weight;
  }
}

}  // namespace

const CrossEntropyKernels cross_entropy_f32 = {fwd, bwd};

}  // namespace mudd::MUDD_ISA
