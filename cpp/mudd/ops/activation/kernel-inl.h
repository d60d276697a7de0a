// Compiled once for each ISA level, with its Vec; see activation.h for the contract.
#include "mudd/base/simd/activations.h"
#include "mudd/base/simd/rows.h"
#include "mudd/ops/activation/activation.h"
#include "mudd/ops/activation/pointwise-inl.h"

namespace mudd::MUDD_ISA {
namespace {

template <class Value>
void write_values(int64_t begin, int64_t end, int64_t cols, const float* x, int64_t x_stride, float* y,
                  int64_t y_stride, Value value) {
  for (int64_t r = begin; r < end; ++r)
    over_row(cols,
             [&](int64_t c, int n) { store(y + r * y_stride + c, value(load(x + r * x_stride + c, n)), n); });
}

template <class Slope>
void write_gradients(int64_t begin, int64_t end, int64_t cols, const float* x, int64_t x_stride, const float* dy,
                     int64_t dy_stride, float* dx, int64_t dx_stride, bool accumulate, Slope slope) {
  for (int64_t r = begin; r < end; ++r)
    over_row(cols, [&](int64_t c, int n) {
      const Vec g = load(dy + r * dy_stride + c, n) * slope(load(x + r * x_stride + c, n));
      float* to = dx + r * dx_stride + c;
      store(to, accumulate ? load(to, n) + g : g, n);
    });
}

void fwd(int64_t begin, int64_t end, int64_t cols, Activation kind, const float* x, int64_t x_stride, float* y,
         int64_t y_stride) {
  with_activation(kind, [&](auto tag) {
    write_values(begin, end, cols, x, x_stride, y, y_stride,
                 [](Vec v) { return activate<decltype(tag)::kind>(v); });
  });
}

void bwd(int64_t begin, int64_t end, int64_t cols, Activation kind, const float* x, int64_t x_stride,
         const float* dy, int64_t dy_stride, float* dx, int64_t dx_stride, bool accumulate) {
  with_activation(kind, [&](auto tag) {
    write_gradients(begin, end, cols, x, x_stride, dy, dy_stride, dx, dx_stride, accumulate,
                    [](Vec v) { return activate_derivative<decltype(tag)::kind>(v); });
  });
}

void pointwise_fwd(int64_t begin, int64_t end, int64_t cols, Pointwise kind, const float* x, int64_t x_stride,
                   float* y, int64_t y_stride) {
  with_pointwise(kind, [&](auto tag) {
    write_values(begin, end, cols, x, x_stride, y, y_stride,
                 [](Vec v) { return pointwise_with_slope<decltype(tag)::kind>(v).value; });
  });
}

void pointwise_bwd(int64_t begin, int64_t end, int64_t cols, Pointwise kind, const float* x, int64_t x_stride,
                   const float* dy, int64_t dy_stride, float* dx, int64_t dx_stride, bool accumulate) {
  with_pointwise(kind, [&](auto tag) {
    write_gradients(begin, end, cols, x, x_stride, dy, dy_stride, dx, dx_stride, accumulate,
                    [](Vec v) { return pointwise_with_slope<decltype(tag)::kind>(v).slope; });
  });
}

}  // namespace

const ActivationKernels activation_f32 = {fwd, bwd, pointwise_fwd, pointwise_bwd};

}  // namespace mudd::MUDD_ISA
