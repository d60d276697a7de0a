// Copies of operands to tiles, with bf16 converted to fp32.
#pragma once

#include "mudd/base/simd/bf16.h"
#include "mudd/base/simd/math.h"
#include "mudd/base/simd/transpose.h"
#include "mudd/ops/attention/attention.h"
#include "mudd/ops/attention/matmul-inl.h"

namespace mudd::MUDD_ISA {
namespace {

inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t larger(int64_t a, int64_t b) { return a < b ? b : a; }
inline int64_t round_up(int64_t n) { return (n + kL - 1) / kL * kL; }
// Return the count `numbers` rounded up to what a matmul reads along its summed axis; the rest is zero padding.
template <class U>
int64_t whole(int64_t numbers) {
  return words_of<U>(numbers) * U::kPer;
}
// Return the row stride of an operand in 32-bit units if the sum runs along the row.
template <class U>
int64_t row_words(int64_t dim) {
  return round_up(words_of<U>(dim));
}

template <class Body>
inline void with_numbers(ConstCells c, Body body) {
  if (c.type == DType::bf16) body(c.b16());
  else body(c.f32());
}

// Set dst[d * ld + r] = edit(element d of row r), which starts at at(r), for r < n and d < count; zeros up to
// the next vector.
template <class At, class Edit>
inline void turn_edited(At at, int64_t n, int64_t count, Edit edit, float* dst, int64_t ld) {
  for (int64_t r0 = 0; r0 < n; r0 += kL) {
    decltype(at(r0)) rows[kL];
    for (int64_t r = 0; r < kL; ++r) rows[r] = r0 + r < n ? at(r0 + r) : nullptr;
    for (int64_t d = 0; d < count; d += kL) {
      const int left = static_cast<int>(smaller(count - d, kL));
      Vec block[kL];
#pragma GCC unroll 16
      for (int r = 0; r < kL; ++r) block[r] = rows[r] ? edit(load(rows[r] + d, left)) : Vec::zero();
      transpose(block);
      for (int c = 0; c < left; ++c) block[c].store(dst + (d + c) * ld + r0);
    }
  }
}
// Transpose elements unchanged, or times `factor`.
template <class At>
inline void turn(At at, int64_t n, int64_t count, float* dst, int64_t ld) {
  turn_edited(at, n, count, [](Vec v) MUDD_BODY { return v; }, dst, ld);
}
template <class At>
inline void turn(At at, int64_t n, int64_t count, float factor, float* dst, int64_t ld) {
  const Vec by = Vec::set1(factor);
  turn_edited(at, n, count, [&](Vec v) MUDD_BODY { return v * by; }, dst, ld);
}

// Copy rows of an operand along the sum: dst row r = src[r * stride ...] times factor, padded with zeros.
inline void copy_words(Wide, ConstCells src, int64_t stride, int64_t n, int64_t dim, float factor, float* dst) {
  const int64_t width = round_up(dim);
  const Vec by = Vec::set1(factor);
  with_numbers(src, [&](auto* from) {
    for (int64_t r = 0; r < n; ++r)
      over_row(dim, [&](int64_t d, int lanes)
                        MUDD_BODY { (load(from + r * stride + d, lanes) * by).store(dst + r * width + d); });
  });
}

// Copy rows of an operand across the sum: dst row w contains the rows of src that unit w combines.
inline void pair_rows(Wide, ConstCells src, int64_t stride, int64_t n, int64_t dim, float factor, float* dst) {
  copy_words(Wide{}, src, stride, n, dim, factor, dst);
}

// Convert `rows` x `cols` scores, ld apart, to the transposed operand of a matmul (the sum runs over the rows)
// in `to`, which may be their memory. Return its lda.
inline int64_t pair_scores(Wide, const float*, int64_t ld, int64_t, int64_t, float*) { return ld; }

// Return true if the n elements are finite; n is a multiple of the vector size.
inline bool finite(const float* x, int64_t n) {
  Vec sums[4] = {Vec::zero(), Vec::zero(), Vec::zero(), Vec::zero()};
  const auto watch = [&](int lane, int64_t at) MUDD_BODY {
    const Vec v = Vec::load(x + at);
    sums[lane] = sums[lane] + (v - v);  // 0, or NaN
  };
  int64_t at = 0;
  for (; at + 4 * kL <= n; at += 4 * kL) unroll<4>([&](auto i) MUDD_BODY { watch(i.value, at + i.value * kL); });
  for (; at < n; at += kL) watch(0, at);
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])).sum() == 0.0f;
}

// Prefetch the keys and values [begin, end), which are in memory when decoding and in L3 for long sequences:
// the hardware prefetcher restarts at every page, and rows of other heads are between.
inline void read_ahead(const AttentionSlice& s, int64_t begin, int64_t end) {
  const auto rows = [&](ConstCells src, int64_t stride) {
    const int64_t line = src.type == DType::bf16 ? 32 : 16;  // elements
    for (int64_t t = begin; t < end; ++t)
      for (int64_t d = 0; d < s.dim; d += line) __builtin_prefetch((src + (t * stride + d)).data, 0, 2);
  };
  rows(s.k, s.k_row);
  rows(s.v, s.v_row);
}

}  // namespace
}  // namespace mudd::MUDD_ISA
