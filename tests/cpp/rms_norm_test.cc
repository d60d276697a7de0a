// levels: rms_norm rows against the double reference, gradients by complex step.
#include "mudd/ops/rms_norm/rms_norm.h"
#include <algorithm>
#include "compare.h"
#include "complex_step.h"
#include "mudd/ops/rms_norm/reference.h"

using namespace mudd;
using namespace mudd::test;

namespace {

// d(sum dy*y)/d(input i) by the complex step on the reference.
std::vector<double> gradient(const std::vector<float>& x, const std::vector<float>& gain,
                             const std::vector<float>& dy, int64_t rows, int64_t d, bool of_gain) {
  return complex_step({x, gain}, of_gain, dy, [&](const auto& in) {
    auto y = in[0];
    reference::rms_norm(rows, d, in[0].data(), in[1].data(), 1e-6, y.data());
    return y;
  });
}

}  // namespace

TEST_CASE("rms_norm rows equal the reference on every edge of the lanes") {
  for_each_row(rms_norm_rows(), [](const auto& row) {
    for (int64_t rows : {0, 1, 3})
      for (int64_t d : {1, 7, 8, 9, 15, 16, 17, 33}) {
        const auto x = numbers(1, rows * d), gain = numbers(2, d), dy = numbers(3, rows * d);
        std::vector<double> want(x.size());
        const auto xd = widen(x), gd = widen(gain);
        reference::rms_norm<double>(rows, d, xd.data(), gd.data(), 1e-6, want.data());
        std::vector<float> y(x.size()), inv(rows), dx(x.size(), 1.0f), dgain(d);
        row.kernels->fwd(0, rows, 1, d, x.data(), d, gain.data(), 1e-6f, y.data(), d, inv.data());
        CHECK(distance(y, want, y.size()) <= tolerance("rms_norm.y"));
        row.kernels->bwd(0, rows, 1, d, x.data(), d, gain.data(), inv.data(), dy.data(), d, dx.data(), d, true,
                         dgain.data());
        // dx was added to ones: with d = 1 the gradient itself cancels to almost nothing.
        auto dx_want = gradient(x, gain, dy, rows, d, false);
        for (double& v : dx_want) v += 1.0;
        CHECK(distance(dx, dx_want, dx.size()) <= tolerance("rms_norm.dx"));
        CHECK(distance(dgain, gradient(x, gain, dy, rows, d, true), dgain.size()) <= tolerance("rms_norm.dgain"));
      }
  });
}

TEST_CASE("heads of a row are rows of their own, whatever the stride") {
  for_each_row(rms_norm_rows(), [](const auto& row) {
    const int64_t rows = 3, heads = 4, d = 9, wide = heads * d + 5;
    const auto x = numbers(1, rows * heads * d), gain = numbers(2, d), dy = numbers(3, x.size());
    std::vector<float> y(x.size()), inv(rows * heads), dx(x.size()), dgain(d);
    row.kernels->fwd(0, rows * heads, 1, d, x.data(), d, gain.data(), 1e-6f, y.data(), d, inv.data());
    row.kernels->bwd(0, rows * heads, 1, d, x.data(), d, gain.data(), inv.data(), dy.data(), d, dx.data(), d,
                     false, dgain.data());
    const auto spread = [&](const std::vector<float>& v) {
      std::vector<float> out(rows * wide, 7.0f);
      for (int64_t r = 0; r < rows; ++r) std::copy_n(v.begin() + r * heads * d, heads * d, out.begin() + r * wide);
      return out;
    };
    std::vector<float> y2(rows * wide, 7.0f), dx2(rows * wide, 7.0f), inv2(inv.size()), dgain2(d);
    row.kernels->fwd(0, rows * heads, heads, d, spread(x).data(), wide, gain.data(), 1e-6f, y2.data(), wide,
                     inv2.data());
    row.kernels->bwd(0, rows * heads, heads, d, spread(x).data(), wide, gain.data(), inv2.data(),
                     spread(dy).data(), wide, dx2.data(), wide, false, dgain2.data());
    CHECK(y2 == spread(y));
    CHECK(inv2 == inv);
    CHECK(dx2 == spread(dx));
    CHECK(dgain2 == dgain);
  });
}
