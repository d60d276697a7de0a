// Built once per level (tests/cpp/CMakeLists.txt).
#include "mudd/base/simd/math.h"
#include "simd_math_test.h"

namespace mudd::MUDD_ISA {
namespace {

template <Vec (*F)(Vec)>
void on_array(const float* x, float* y, int64_t n) {
  for (int64_t i = 0; i < n; i += Vec::kLanes) F(Vec::load(x + i)).store(y + i);
}

void fma_arrays(const float* a, const float* b, const float* c, float* y, int64_t n) {
  for (int64_t i = 0; i < n; i += Vec::kLanes)
    fma(Vec::load(a + i), Vec::load(b + i), Vec::load(c + i)).store(y + i);
}

void choices(const float* a, const float* b, float* y, int64_t n) {
  for (int64_t i = 0; i < n; i += Vec::kLanes) {
    const Vec u = Vec::load(a + i), v = Vec::load(b + i);
    const Vec one = Vec::set1(1.0f);
    const Vec results[] = {min(u, v), max(u, v),    select(less(u, v), u, v),  select(less(v, u), u, v),
                           abs(u),    sqrt(abs(v)), select(less(u, v), v, one)};
    for (int64_t k = 0; k < kChoices; ++k) results[k].store(y + k * n + i);
  }
}

}  // namespace

const MathKernels simd_math_f32 = {on_array<exp>, on_array<exp_nonpositive>, on_array<log>, on_array<tanh>,
                                   on_array<erf>, on_array<sigmoid>,         fma_arrays,    choices};

}  // namespace mudd::MUDD_ISA
