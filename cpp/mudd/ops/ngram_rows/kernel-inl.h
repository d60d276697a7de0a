// Compiled once for each ISA level, with its Vec (base/simd/vec.h); see ngram_rows.h for the contract.
#include "mudd/base/simd/rows.h"
#include "mudd/ops/ngram_rows/ngram_rows.h"

namespace mudd::MUDD_ISA {
namespace {

constexpr int64_t kAhead = 16;  // look-ups between the prefetch of a row and its use
constexpr int64_t kLine = 16;   // floats of a cache line

inline void prefetch(const float* row, int64_t d) {
  for (int64_t at = 0; at < d; at += kLine) __builtin_prefetch(row + at);
}

void fwd(int64_t begin, int64_t end, int64_t d, int64_t orders, const int32_t* ids, const float* signs,
         const float* table, int64_t table_stride, float* y, int64_t y_stride) {
  const int64_t first = begin * orders, last = end * orders;
  // Rows of a large table are in no cache, so loads of several rows have to overlap.
  for (int64_t i = first; i < last && i < first + kAhead; ++i) prefetch(table + ids[i] * table_stride, d);
  for (int64_t r = begin; r < end; ++r) {
    const int64_t at = r * orders;
    for (int64_t i = at + kAhead; i < at + kAhead + orders && i < last; ++i)
      prefetch(table + ids[i] * table_stride, d);
    float* yr = y + r * y_stride;
    over_row(d, [&](int64_t c, int n) {
      Vec v = load(table + ids[at] * table_stride + c, n) * Vec::set1(signs[at]);
      for (int64_t o = 1; o < orders; ++o)
        v = v + load(table + ids[at + o] * table_stride + c, n) * Vec::set1(signs[at + o]);
      store(yr + c, v, n);
    });
  }
}

}  // namespace

const NgramRowsKernels ngram_rows_f32 = {fwd};

}  // namespace mudd::MUDD_ISA
