// Built once per level over Vec; see convert.h for the contract.
#include "mudd/base/simd/bf16.h"
#include "mudd/base/simd/rows.h"
#include "mudd/kernels/convert/convert.h"

namespace mudd::MUDD_ISA {
namespace {

void widen(int64_t n, const bf16* x, float* y) {
  over_row(n, [&](int64_t i, int lanes) { store(y + i, load(x + i, lanes), lanes); });
}

void narrow(int64_t n, const float* x, bf16* y) {
  over_row(n, [&](int64_t i, int lanes) { store(y + i, load(x + i, lanes), lanes); });
}

void round(int64_t n, const float* x, float* y) {
  over_row(n, [&](int64_t i, int lanes) {
    bf16 rounded[Vec::kLanes];
    store(rounded, load(x + i, lanes), lanes);
    store(y + i, load(rounded, lanes), lanes);
  });
}

}  // namespace

const ConvertKernels convert_f32 = {widen, narrow, round};

}  // namespace mudd::MUDD_ISA
