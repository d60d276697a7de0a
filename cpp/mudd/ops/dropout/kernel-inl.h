// Compiled once for each ISA level, with its Vec; see dropout.h for the contract.
#include "mudd/base/simd/draws.h"
#include "mudd/base/simd/rows.h"
#include "mudd/ops/dropout/dropout.h"

namespace mudd::MUDD_ISA {
namespace {

constexpr int64_t kPiece = 4 * kDraws;  // elements of one draw of a row

void apply(const Dropout& d, const DropoutRows& a) {
  Draws draws;
  float factors[kPiece];
  for (float& factor : factors) factor = 1.0f;
  for (int64_t r = a.begin; r < a.end; ++r) {
    const float *x = a.x + r * a.x_stride, *base = a.base ? a.base + r * a.base_stride : nullptr;
    float* y = a.y + r * a.y_stride;
    for (int64_t c0 = 0; c0 < a.cols; c0 += kPiece) {
      for (int i = 0; d && i < kDraws; ++i) {
        draws.position[i] = static_cast<uint32_t>(r % a.time);
        draws.block[i] = static_cast<uint32_t>(c0 / 4 + i);
      }
      if (d) draws.draw(d, d.sample + static_cast<uint32_t>(r / a.time));
      for (int i = 0; d && i < kDraws; ++i)
        for (int w = 0; w < 4; ++w) factors[4 * i + w] = draws.factor[w][i];
      const int64_t n = a.cols - c0 < kPiece ? a.cols - c0 : kPiece;
      over_row(n, [&](int64_t c, int lanes) {
        const Vec kept = load(x + c0 + c, lanes) * load(factors + c, lanes);
        store(y + c0 + c, base ? load(base + c0 + c, lanes) + kept : kept, lanes);
      });
    }
  }
}

}  // namespace

const DropoutKernels dropout_f32 = {apply};

}  // namespace mudd::MUDD_ISA
