// Compiled once for each ISA level, with its Vec; see convert.h for the contract.
#include <bit>

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

// NaN and infinity keep their kind, whatever the offset.
template <class Out>
void cut(int64_t n, const float* x, int32_t offset, Out* y) {
  const Vec infinity = Vec::set1(__builtin_inff());
  over_row(n, [&](int64_t i, int lanes) {
    const Vec v = load(x + i, lanes);
    store(y + i, select(less(abs(v), infinity), cut_bf16(v, offset), v), lanes);
  });
}

// Integer code at every level: F16C would make signalling NaNs quiet, and its result depends on CPU modes.
// Without branches the compiler vectorizes it.
void widen_half(int64_t n, const f16* x, float* y) {
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t sign = (uint32_t{x[i].bits} & 0x8000u) << 16, rest = x[i].bits & 0x7fffu;
    const uint32_t offset = rest >= 0x7c00u ? 0x70000000u : 0x38000000u;  // infinity and NaN: the largest exponent
    const uint32_t normal = (rest << 13) + offset;
    const uint32_t tiny = std::bit_cast<uint32_t>(static_cast<float>(static_cast<int32_t>(rest)) * 0x1p-24f);
    y[i] = std::bit_cast<float>(sign | (rest < 0x0400u ? tiny : normal));
  }
}

void narrow_half(int64_t n, const float* x, f16* y) {
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t bits = std::bit_cast<uint32_t>(x[i]), rest = bits & 0x7fffffffu;
    const uint32_t normal = (rest - 0x38000000u + 0xfffu + ((rest >> 13) & 1u)) >> 13;
    // Adding 1/2 makes one fp16 denormal the last place of the sum, so the addition rounds.
    const float sum = std::bit_cast<float>(rest < 0x38800000u ? rest : 0u) + 0.5f;
    const uint32_t tiny = std::bit_cast<uint32_t>(sum) - 0x3f000000u;
    uint32_t half = rest < 0x38800000u ? tiny : normal;
    half = rest >= 0x477ff000u ? 0x7c00u : half;  // values that round to 2^16
    half = rest > 0x7f800000u ? 0x7e00u : half;
    y[i].bits = static_cast<uint16_t>(half | ((bits >> 16) & 0x8000u));
  }
}

}  // namespace

const ConvertKernels convert_f32 = {widen, narrow, round, cut<float>, cut<bf16>, widen_half, narrow_half};

}  // namespace mudd::MUDD_ISA
