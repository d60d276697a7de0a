// The small matmuls inside one pair of tiles, all operands in L1 or L2. Included by kernel-inl.h only.
//
// C[i, j] = sum over s of A[i, s] B[s, j], one chain of the unit's steps over s in order from zero, then
// combined with C according to Into (tiles-inl.h continues the chain from C if it is not scaled). So the bits
// of an element do not depend on the split of the tile into registers.
#pragma once

#include <utility>

#include "mudd/base/simd/vec.h"

namespace mudd::MUDD_ISA {
namespace {

// An attribute of lambdas, after their parameters.
#define MUDD_BODY __attribute__((always_inline))

constexpr int kL = Vec::kLanes;
constexpr int kPanel = 2;  // vectors of C in a register row
// Rows of C in registers: 24 accumulators of 32 registers, 12 of 16, or 8 if fused.h needs some.
constexpr int kStrip = kL == 16 ? 12 : kL == 8 ? 6 : 4;
constexpr int64_t kAllVisible = -(int64_t{1} << 40);

// The part of a causal pair of tiles that a matmul may skip, because P is zero or will be masked there. Key kk
// of the tile is visible to query r of the tile if r >= kk + shift.
enum class Trim {
  columns_begin,  // rows are keys, columns are queries: skip columns before the first visible query
  columns_end,    // rows are queries, columns are keys: skip columns after the strip's last visible key
  depth_end,      // rows are queries, the sum is over keys: stop after the strip's last visible key
  depth_begin,    // rows are keys, the sum is over queries: start at the strip's first visible query
};

// The update of C. A template argument: with a run-time choice gcc 12 loads all of C before it and spills.
enum class Into { set, add, scaled_add };  // the sums; C + sums; C times its row's factor + sums

// Strides of A and B and indexes s are in 32-bit units; depth and shift are in elements.
struct Matmul {
  const float* a = nullptr;  // A[i, s] at a[i * lda + s], or transposed in the layout of the unit's pair_scores
  int64_t lda = 0;
  const float* b = nullptr;  // B[s, j] at b[s * ldb + j]
  int64_t ldb = 0;
  float* c = nullptr;
  int64_t ldc = 0;
  int64_t rows = 0, cols = 0, depth = 0;  // cols may end inside a vector; B is then padded
  int64_t shift = kAllVisible;
  const float* row_scale = nullptr;  // for scaled_add: the factor of row i
  bool skip_zeros = false;           // if the depth is trimmed: skip zeros of A
};

// The operand format of the matmuls. A unit (Wide: fp32 by fma; dot-inl.h, tiles-inl.h: pairs of bf16) has
//   kPer        elements in a 32-bit unit of an operand, adjacent along the sum
//   kDepth      operands are padded with zeros to a multiple of this along the sum
//   kReach      trimmed matmuls read fewer than this many keys after the last visible one: there P and dS are 0
//   Session     state of a thread while it multiplies
//   copy_words, pair_rows, pair_scores (pack-inl.h), overloaded; kPairsInPlace: the last one may run in place
struct Wide {
  static constexpr int kPer = 1, kDepth = 1, kReach = kStrip;
  static constexpr bool kPairsInPlace = true;
  struct Session {};
  static Vec add(Vec a, Vec b, Vec c) { return fma(a, b, c); }
};
template <class U>
constexpr int64_t words_of(int64_t numbers) {
  return (numbers + U::kDepth - 1) / U::kDepth * (U::kDepth / U::kPer);
}

}  // namespace
}  // namespace mudd::MUDD_ISA

#include "mudd/ops/attention/chains-inl.h"

namespace mudd::MUDD_ISA {
namespace {

template <int I>
struct Index {
  static constexpr int value = I;
};

// Call body(Index<0>), body(Index<1>), ...: constant indices keep the accumulators in registers (gcc 12 spills
// arrays that a loop indexes).
template <class Body, int... I>
inline MUDD_BODY void unroll_over(Body body, std::integer_sequence<int, I...>) {
  (body(Index<I>{}), ...);
}
template <int N, class Body>
inline MUDD_BODY void unroll(Body body) {
  unroll_over(body, std::make_integer_sequence<int, N>{});
}

// Compute MR x NV vectors of C; whole: the last one has all lanes, else the first `tail`. With a trimmed depth
// the skipped steps could only turn a sum of -0 into +0, so every path does that.
template <class U, int MR, int NV, bool kTurned, bool kWhole, Trim kTrim, Into kInto>
inline void registers(const Matmul& p, StripChains<U>& chains, int64_t i, int64_t j, int64_t s_begin,
                      int64_t s_end, int tail) {
  Vec acc[MR * NV];
  float* c = p.c + i * p.ldc + j;
  const int64_t ldc = p.ldc, lda = p.lda, ldb = p.ldb;
  if constexpr (kInto != Into::set)
    unroll<MR>([&](auto r) MUDD_BODY { __builtin_prefetch(c + r.value * ldc, 1, 3); });
  unroll<MR * NV>([&](auto n) MUDD_BODY { acc[n.value] = Vec::zero(); });
  int64_t left = s_end - s_begin;
  if (MR == kStrip && chains.sum(j, NV * kL, s_begin, s_end)) {
    unroll<MR * NV>([&](auto n) MUDD_BODY {
      acc[n.value] = Vec::load(chains.sums() + n.value / NV * kPanel * kL + n.value % NV * kL);
    });
    left = 0;
  }
  const float* a = kTurned ? p.a + i + s_begin * lda : p.a + i * lda + s_begin;
  const float* b = p.b + j + s_begin * ldb;
  for (; left > 0; --left) {
    Vec bv[NV];
    unroll<NV>([&](auto v) MUDD_BODY { bv[v.value] = Vec::load(b + v.value * kL); });
    unroll<MR>([&](auto r) MUDD_BODY {
      const Vec av = Vec::set1(kTurned ? a[r.value] : a[r.value * lda]);
      unroll<NV>([&](auto v) MUDD_BODY {
        acc[r.value * NV + v.value] = U::add(av, bv[v.value], acc[r.value * NV + v.value]);
      });
    });
    a += kTurned ? lda : 1;
    b += ldb;
  }
  if constexpr (kTrim == Trim::depth_begin || kTrim == Trim::depth_end)
    unroll<MR * NV>([&](auto n) MUDD_BODY { acc[n.value] = acc[n.value] + Vec::zero(); });
  const auto old = [&](auto r, auto v) MUDD_BODY {
    const float* at = c + r.value * ldc + v.value * kL;
    return v.value + 1 == NV && !kWhole ? Vec::load_n(at, tail) : Vec::load(at);
  };
  if constexpr (kInto == Into::scaled_add)
    unroll<MR>([&](auto r) MUDD_BODY {
      const Vec scale = Vec::set1(p.row_scale[i + r.value]);
      unroll<NV>([&](auto v) MUDD_BODY {
        acc[r.value * NV + v.value] = fma(old(r, v), scale, acc[r.value * NV + v.value]);
      });
    });
  if constexpr (kInto == Into::add)
    unroll<MR>([&](auto r) MUDD_BODY {
      unroll<NV>([&](auto v) MUDD_BODY { acc[r.value * NV + v.value] = old(r, v) + acc[r.value * NV + v.value]; });
    });
  unroll<MR>([&](auto r) MUDD_BODY {
    unroll<NV>([&](auto v) MUDD_BODY {
      float* at = c + r.value * ldc + v.value * kL;
      if (v.value + 1 == NV && !kWhole) acc[r.value * NV + v.value].store_n(at, tail);
      else acc[r.value * NV + v.value].store(at);
    });
  });
}

inline int64_t clamp(int64_t x, int64_t low, int64_t high) { return x < low ? low : x > high ? high : x; }

// The part of `rows` rows of C from row i to compute: columns [begin, end), with the sum over [s_begin, s_end).
struct Kept {
  int64_t begin = 0, end = 0, s_begin = 0, s_end = 0;
};
template <class U, Trim kTrim>
inline Kept kept(const Matmul& p, int64_t i, int64_t rows) {
  int64_t begin = 0, end = p.cols, first = 0, last = p.depth;
  constexpr int64_t kWide = kPanel * kL;
  if constexpr (kTrim == Trim::columns_begin) begin = clamp(i + p.shift, 0, p.cols) / kWide * kWide;
  if constexpr (kTrim == Trim::columns_end) end = clamp(i + rows - p.shift, 0, p.cols);
  if constexpr (kTrim == Trim::depth_end) last = clamp(i + rows - p.shift, 0, p.depth);
  if constexpr (kTrim == Trim::depth_begin) first = clamp(i + p.shift, 0, p.depth);
  return {begin, end, first / U::kDepth * (U::kDepth / U::kPer), words_of<U>(last)};
}

template <class U, int MR, bool kTurned, Trim kTrim, Into kInto>
inline void strip(const Matmul& p, StripChains<U>& chains, int64_t i) {
  const Kept part = kept<U, kTrim>(p, i, MR);
  const int64_t s_begin = part.s_begin, s_end = part.s_end, cols = part.end;
  int64_t j = part.begin;
  if (MR == kStrip) chains.template read_strip<kTurned>(p, i, s_begin, s_end);
  constexpr int kWide = kPanel * kL;
  for (; j + kWide <= cols; j += kWide)
    registers<U, MR, kPanel, kTurned, true, kTrim, kInto>(p, chains, i, j, s_begin, s_end, kL);
  const int64_t left = cols - j;
  if (left <= 0) return;
  if constexpr (kTrim == Trim::columns_end) {  // whole vectors fit C
    if (left > kL) registers<U, MR, kPanel, kTurned, true, kTrim, kInto>(p, chains, i, j, s_begin, s_end, kL);
    else registers<U, MR, 1, kTurned, true, kTrim, kInto>(p, chains, i, j, s_begin, s_end, kL);
  } else {
    if (left > kL)
      registers<U, MR, kPanel, kTurned, false, kTrim, kInto>(p, chains, i, j, s_begin, s_end,
                                                             static_cast<int>(left - kL));
    else if (left == kL) registers<U, MR, 1, kTurned, true, kTrim, kInto>(p, chains, i, j, s_begin, s_end, kL);
    else
      registers<U, MR, 1, kTurned, false, kTrim, kInto>(p, chains, i, j, s_begin, s_end, static_cast<int>(left));
  }
}

// Compute the same bits as the other loops if B is finite. An infinity or NaN in B reaches only rows of C whose
// coefficient for it is not zero, for every strip size.
template <bool kTurned, Trim kTrim, Into kInto>
__attribute__((noinline, cold)) void matmul_without_zeros(const Matmul& p) {
  for (int64_t i = 0; i < p.rows; ++i) {
    const Kept part = kept<Wide, kTrim>(p, i, 1);
    for (int64_t j = 0; j < p.cols; j += kL) {
      const int lanes = static_cast<int>(p.cols - j < kL ? p.cols - j : kL);
      float* at = p.c + i * p.ldc + j;
      Vec sum = Vec::zero();
      for (int64_t s = part.s_begin; s < part.s_end; ++s) {
        const float a = kTurned ? p.a[s * p.lda + i] : p.a[i * p.lda + s];
        if (a != 0.0f) sum = Wide::add(Vec::set1(a), Vec::load(p.b + s * p.ldb + j), sum);
      }
      sum = sum + Vec::zero();
      if constexpr (kInto == Into::scaled_add) sum = fma(Vec::load_n(at, lanes), Vec::set1(p.row_scale[i]), sum);
      if constexpr (kInto == Into::add) sum = Vec::load_n(at, lanes) + sum;
      sum.store_n(at, lanes);
    }
  }
}

template <bool kTurned, Trim kTrim, Into kInto, class U>
__attribute__((noinline)) void matmul(U, const Matmul& p) {
  if constexpr (U::kPer == 1 && (kTrim == Trim::depth_begin || kTrim == Trim::depth_end))
    if (p.skip_zeros) return matmul_without_zeros<kTurned, kTrim, kInto>(p);
  StripChains<U> chains(p);
  int64_t i = 0;
  for (; i + kStrip <= p.rows; i += kStrip) strip<U, kStrip, kTurned, kTrim, kInto>(p, chains, i);
  if constexpr (kStrip > 8)
    for (; i + 8 <= p.rows; i += 8) strip<U, 8, kTurned, kTrim, kInto>(p, chains, i);
  for (; i + 4 <= p.rows; i += 4) strip<U, 4, kTurned, kTrim, kInto>(p, chains, i);
  for (; i < p.rows; ++i) strip<U, 1, kTurned, kTrim, kInto>(p, chains, i);
}

}  // namespace
}  // namespace mudd::MUDD_ISA
