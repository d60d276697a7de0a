// Compiled once for each ISA level, with its Vec (base/simd/vec.h); see rope.h for the contract.
#include "mudd/base/simd/vec.h"
#include "mudd/ops/rope/rope.h"

namespace mudd::MUDD_ISA {
namespace {

inline Vec load(const float* p, int n) { return n == Vec::kLanes ? Vec::load(p) : Vec::load_n(p, n); }
inline void put(float* p, Vec v, int n, bool accumulate) {
  if (accumulate) v = load(p, n) + v;
  if (n == Vec::kLanes) v.store(p);
  else v.store_n(p, n);
}

template <class Body>
inline void over(int64_t begin, int64_t end, Body body) {
  int64_t d = begin;
  for (; d + Vec::kLanes <= end; d += Vec::kLanes) body(d, Vec::kLanes);
  if (d < end) body(d, static_cast<int>(end - d));
}

void rotate(const RopeBlock& b) {
  const Vec sign = Vec::set1(b.negative ? -1.0f : 1.0f);
  for (int64_t r = b.begin; r < b.end; ++r) {
    const int64_t position = b.positions ? b.positions[r] : b.first_position + r % b.time;
    const float* cos = b.table + position * 2 * b.pairs;
    const float* sin = cos + b.pairs;
    for (int64_t h = 0; h < b.heads; ++h) {
      const float* x = b.x + r * b.x_row + h * b.x_head;
      float* y = b.y + r * b.y_row + h * b.y_head;
      over(0, b.pairs, [&](int64_t d, int n) {
        const Vec x1 = load(x + d, n), x2 = load(x + d + b.pairs, n);
        const Vec c = load(cos + d, n), s = load(sin + d, n) * sign;
        put(y + d, fnma(x2, s, x1 * c), n, b.accumulate);
        put(y + d + b.pairs, fma(x1, s, x2 * c), n, b.accumulate);
      });
      if (x != y || b.accumulate)
        over(2 * b.pairs, b.dim, [&](int64_t d, int n) { put(y + d, load(x + d, n), n, b.accumulate); });
    }
  }
}

}  // namespace

const RopeKernels rope_f32 = {rotate};

}  // namespace mudd::MUDD_ISA
