// Compiled once for each ISA level, with its Vec; see peak.h.
#include <utility>

#include "mudd/base/simd/vec.h"
#include "mudd/kernels/peak/peak.h"

namespace mudd::MUDD_ISA {
namespace {

template <size_t... I>
inline __attribute__((always_inline)) float chains(std::index_sequence<I...>, int64_t rounds) {
  // Start, factor and addend are volatile reads, because the compiler would fold constants.
  volatile float unknown = 0.999f;
  const Vec factor = Vec::set1(unknown), addend = Vec::set1(unknown);
  Vec chain[] = {Vec::set1(static_cast<float>(I) + unknown)...};
  for (int64_t r = 0; r < rounds; ++r) ((chain[I] = fma(chain[I], factor, addend)), ...);
  Vec sum = Vec::zero();
  ((sum = sum + chain[I]), ...);
  return sum.sum();
}

float multiply_add(int64_t rounds) { return chains(std::make_index_sequence<kPeakFmas>(), rounds); }

float read(const float* p, int64_t n) {
  Vec a = Vec::zero(), b = a, c = a, d = a;
  for (int64_t i = 0; i < n; i += 4 * Vec::kLanes) {
    a = a + Vec::load(p + i);
    b = b + Vec::load(p + i + Vec::kLanes);
    c = c + Vec::load(p + i + 2 * Vec::kLanes);
    d = d + Vec::load(p + i + 3 * Vec::kLanes);
  }
  return ((a + b) + (c + d)).sum();
}

}  // namespace

const PeakKernels peak_f32 = {Vec::kLanes, multiply_add, read};
const UnitKernels peak_bf16 = {2 * kPeakFmas * Vec::kLanes, multiply_add};  // bf16 is loaded as fp32 here

}  // namespace mudd::MUDD_ISA
