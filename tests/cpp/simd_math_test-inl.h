// Built once per level (tests/cpp/CMakeLists.txt).
#include "mudd/base/simd/math.h"
#include "simd_math_test.h"

namespace mudd::MUDD_ISA {
namespace {

template <Vec (*F)(Vec)>
void on_array(const float* x, float* y, int64_t n) {
  for (int64_t i = 0; i < n; i += Vec::kLanes) F(Vec::load(x + i)).store(y + i);
}

}  // namespace

const MathKernels simd_math_f32 = {on_array<exp>, on_array<exp_nonpositive>, on_array<log>, on_array<tanh>,
                                   on_array<erf>, on_array<sigmoid>};

}  // namespace mudd::MUDD_ISA
