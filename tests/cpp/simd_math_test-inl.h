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

}  // namespace

const MathKernels simd_math_f32 = {on_array<exp>, on_array<exp_nonpositive>, on_array<log>, on_array<tanh>,
                                   on_array<erf>, on_array<sigmoid>,         fma_arrays};

}  // namespace mudd::MUDD_ISA
