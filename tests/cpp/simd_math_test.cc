// Elementary functions over Vec at every level against the C library's double: the errors that math.h states.
#include "simd_math_test.h"

#include <bit>
#include <cmath>
#include <string>

#include "compare.h"
#include "mudd/base/parallel.h"

using namespace mudd;
using namespace mudd::test;

namespace {

std::span<const KernelRow<MathKernels>> rows() {
  static const KernelRow<MathKernels> all[] = {
#define MUDD_MATH_ROW(level) {"simd_math_f32", #level, &level::simd_math_f32},
      MUDD_MATH_LEVELS(MUDD_MATH_ROW)
#undef MUDD_MATH_ROW
  };
  return all;
}

constexpr float kSmallest = 1.17549435e-38f;  // normal number

struct Worst {
  double ulp = 0;
  float at = 0;
};

// Return the largest error in units of the last place over floats in [low, high], every `step`-th bit pattern
// of either sign, if the result is a normal number.
template <class Want>
Worst worst(MathKernels::Function f, Want want, float low, float high, uint32_t step = 4099) {
  Worst w;
  std::vector<float> x, y;
  const auto flush = [&] {
    x.resize((x.size() + 15) / 16 * 16, low);
    y.resize(x.size());
    f(x.data(), y.data(), static_cast<int64_t>(x.size()));
    for (size_t i = 0; i < x.size(); ++i) {
      const double expected = want(static_cast<double>(x[i]));
      const float near = static_cast<float>(std::fabs(expected));
      if (near < kSmallest) continue;
      const double ulp = std::fabs(y[i] - expected) / (std::nextafter(near, INFINITY) - near);
      if (!(ulp <= w.ulp)) w = {ulp, x[i]};  // also keeps NaN
    }
    x.clear();
  };
  for (uint32_t sign : {0u, 0x80000000u})
    for (uint64_t bits = 0; bits <= 0x7f7fffff; bits += step) {
      const float v = std::bit_cast<float>(static_cast<uint32_t>(bits) | sign);
      if (v < low || v > high) continue;
      x.push_back(v);
      if (x.size() == 4096) flush();
    }
  flush();
  return w;
}

float at(MathKernels::Function f, float x) {
  const std::vector<float> in(16, x);
  std::vector<float> out(16);
  f(in.data(), out.data(), 16);
  return out[15];
}

// Operands of fused multiply-adds: any bits, edges, values of few bits (their sums are often halfway between
// two floats), and addends that are a rounded a b times a power of two.
struct Operands {
  std::vector<float> a, b, c;

  Operands(uint64_t seed, int64_t n) {
    constexpr uint32_t kEdges[] = {0,          0x80000000, 1,          0x007fffff, 0x00800000,
                                   0x80800001, 0x33800000, 0x33800001, 0x3f800000, 0xbf800001,
                                   0x7f7fffff, 0xff800000, 0x7f800000, 0x7fc00000};
    uint64_t state = seed;
    const auto bits = [&] {
      state = state * 6364136223846793005u + 1442695040888963407u;
      return static_cast<uint32_t>(state >> 32);
    };
    const auto draw = [&] {
      const uint32_t kind = bits() >> 30, r = bits(), binade = (96 + (bits() >> 8) % 64) << 23;
      if (kind == 0) return std::bit_cast<float>(r);
      if (kind == 1) return std::bit_cast<float>(kEdges[(r >> 8) % std::size(kEdges)]);
      if (kind == 2) return std::bit_cast<float>((r & 0x80700003u) | binade);
      return std::bit_cast<float>((r & 0x807fffffu) | binade);
    };
    for (int64_t i = 0; i < n; ++i) {
      a.push_back(draw()), b.push_back(draw());
      const float near = std::ldexp(a.back() * b.back(), static_cast<int>(bits() >> 8) % 60 - 30);
      c.push_back(bits() >> 31 ? near : draw());
    }
  }
};

bool equal(float x, float y) { return std::memcmp(&x, &y, sizeof x) == 0 || (std::isnan(x) && std::isnan(y)); }

double logistic(double x) { return 1 / (1 + std::exp(-x)); }

}  // namespace

TEST_CASE("errors stay below those that math.h states") {
  for_each_row(rows(), [](const auto& row) {
    const MathKernels& k = *row.kernels;
    const auto exp = [](double x) { return std::exp(x); };
    const auto log = [](double x) { return std::log(x); };
    const auto tanh = [](double x) { return std::tanh(x); };
    const auto erf = [](double x) { return std::erf(x); };
    const auto holds = [](const char* what, Worst w, double bound) {
      std::printf("    %-8s %.2f ulp at %.9g\n", what, w.ulp, static_cast<double>(w.at));
      CHECK(w.ulp <= bound);
    };
    holds("exp", worst(k.exp, exp, -87.33f, 88.72f), 1.2);
    holds("exp <= 0", worst(k.exp_nonpositive, exp, -87.33f, -1e-38f), 1.2);
    holds("log", worst(k.log, log, kSmallest, 3.4e38f), 2.2);
    holds("log", worst(k.log, log, 0.7f, 1.5f, 61), 2.2);  // around its zero
    holds("tanh", worst(k.tanh, tanh, -3.4e38f, 3.4e38f), 1.8);
    holds("tanh", worst(k.tanh, tanh, 0.3f, 2.0f, 61), 1.8);  // around the change of branch
    holds("erf", worst(k.erf, erf, -3.4e38f, 3.4e38f), 2.5);
    holds("erf", worst(k.erf, erf, 0.5f, 2.0f, 61), 2.5);
    holds("sigmoid", worst(k.sigmoid, logistic, -87.33f, 3.4e38f), 2.5);
  });
}

TEST_CASE("limits, zeros and NaN") {
  for_each_row(rows(), [](const auto& row) {
    const MathKernels& k = *row.kernels;
    for (const MathKernels::Function f : {k.exp, k.tanh, k.erf, k.sigmoid}) CHECK(std::isnan(at(f, NAN)));
    CHECK(at(k.exp, 0.0f) == 1.0f);
    CHECK(at(k.exp, -INFINITY) == 0.0f);
    CHECK(at(k.exp, -88.0f) == 0.0f);
    CHECK(std::isfinite(at(k.exp, 88.72f)));
    CHECK(at(k.exp, 88.8f) == INFINITY);
    CHECK(at(k.exp, INFINITY) == INFINITY);
    CHECK(at(k.log, 1.0f) == 0.0f);
    for (const float sign : {1.0f, -1.0f}) {
      CHECK(at(k.tanh, sign * INFINITY) == sign);
      CHECK(at(k.erf, sign * INFINITY) == sign);
      CHECK(at(k.tanh, sign * 0.0f) == 0.0f);
      CHECK(at(k.erf, sign * 0.0f) == 0.0f);
    }
    CHECK(at(k.sigmoid, 0.0f) == 0.5f);
    CHECK(at(k.sigmoid, INFINITY) == 1.0f);
    CHECK(at(k.sigmoid, -INFINITY) == 0.0f);
  });
}

TEST_CASE("exp_nonpositive has the bits of exp") {
  std::vector<float> x{-0.0f, 0.0f, -INFINITY, -87.33f, -87.33654f, -87.33655f, -88.0f, -1e30f, -1e-30f, -3.4e38f};
  for (int i = 0; i < 65536; ++i) x.push_back(-0.0014f * static_cast<float>(i));
  x.resize((x.size() + 15) / 16 * 16);
  for_each_row(rows(), [&](const auto& row) {
    std::vector<float> u(x.size()), v(x.size());
    row.kernels->exp(x.data(), u.data(), static_cast<int64_t>(x.size()));
    row.kernels->exp_nonpositive(x.data(), v.data(), static_cast<int64_t>(x.size()));
    CHECK(std::memcmp(u.data(), v.data(), u.size() * sizeof(float)) == 0);
    CHECK(std::isnan(at(row.kernels->exp_nonpositive, NAN)));
  });
}

TEST_CASE("a multiply-add is rounded once at every level") {
  constexpr int64_t kCount = 1 << 14;
  for (uint64_t seed = 0; seed < 64; ++seed) {
    const Operands x(seed, kCount);
    std::vector<float> want;  // of the first row, in the state of workers: zeros for what is below 2^-126
    for (const auto& row : rows()) {
      if (!row.runs_here()) continue;
      std::vector<float> flushed(kCount), kept(kCount);
      row.kernels->fma(x.a.data(), x.b.data(), x.c.data(), kept.data(), kCount);
      parallel_for(
          1, [&](int64_t, int) { row.kernels->fma(x.a.data(), x.b.data(), x.c.data(), flushed.data(), kCount); });
      if (want.empty()) want = flushed;
      int64_t wrong = 0;
      for (size_t i = 0; i < kCount; ++i) {
        const float exact = std::fma(x.a[i], x.b[i], x.c[i]);
        wrong += !equal(flushed[i], want[i]) || (std::fabs(exact) > kSmallest && !equal(kept[i], exact));
      }
      CAPTURE(row.level);
      CAPTURE(seed);
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("all levels give equal bits") {
  const auto x = numbers(1, 4096);
  std::vector<float> positive, wide;
  for (float v : x) positive.push_back(std::fabs(v) * 50 + 1e-3f), wide.push_back(v * 30);
  const KernelRow<MathKernels>* first = nullptr;
  for (const auto& row : rows()) {
    if (!row.runs_here()) continue;
    if (!first) first = &row;
    const MathKernels &a = *first->kernels, &b = *row.kernels;
    const auto same = [&](MathKernels::Function f, MathKernels::Function g, const std::vector<float>& in) {
      std::vector<float> u(in.size()), v(in.size());
      f(in.data(), u.data(), static_cast<int64_t>(in.size()));
      g(in.data(), v.data(), static_cast<int64_t>(in.size()));
      return u == v;
    };
    CHECK(same(a.exp, b.exp, wide));
    CHECK(same(a.log, b.log, positive));
    CHECK(same(a.tanh, b.tanh, wide));
    CHECK(same(a.erf, b.erf, wide));
    CHECK(same(a.sigmoid, b.sigmoid, wide));
  }
}

// The rules of x86-64: a denormal is a zero in comparisons, minima, maxima and roots, and passes through the
// others. A compiler must not merge less() and select() into a minimum.
TEST_CASE("choices between denormals, zeros, infinities and NaN follow the rules of x86-64") {
  constexpr size_t kCount = 1 << 14;
  const auto daz = [](float x) { return std::fabs(x) < kSmallest ? std::copysign(0.0f, x) : x; };
  const Operands x(1, kCount);
  std::vector<float> want(kChoices * kCount);
  for (size_t i = 0; i < kCount; ++i) {
    const float a = x.a[i], b = x.b[i], u = daz(a), v = daz(b);
    const float all[] = {u < v ? u : v, u > v ? u : v,           u < v ? a : b,   v < u ? a : b,
                         std::fabs(a),  std::sqrt(std::fabs(v)), u < v ? b : 1.0f};
    for (size_t k = 0; k < kChoices; ++k) want[k * kCount + i] = all[k];
  }
  for_each_row(rows(), [&](const auto& row) {
    std::vector<float> got(want.size());
    parallel_for(1, [&](int64_t, int) { row.kernels->choices(x.a.data(), x.b.data(), got.data(), kCount); });
    size_t wrong = 0;
    for (size_t i = 0; i < got.size(); ++i) wrong += !equal(got[i], want[i]);
    for (const float y : got) results_hash = hash_of(y, results_hash);
    CAPTURE(row.level);
    CHECK(wrong == 0);
  });
}

// docs/same-bits.md: the one difference of fp32 bits between x86-64 and ARM.
TEST_CASE("a denormal that rounds to 2^-126 is kept on x86-64, which flushes after rounding, and zero on ARM") {
#if defined(__aarch64__)
  constexpr float kRounded = 0.0f;
#else
  constexpr float kRounded = kSmallest;
#endif
  const float a = std::ldexp(18631.0f, -75), b = std::ldexp(1801.0f, -76);  // a b = 2^-126 - 2^-151
  const float most = std::ldexp(16777215.0f, -75);                          // times 2^-75: 2^-126 - 2^-150
  for_each_row(rows(), [&](const auto& row) {
    std::vector<float> x(16, a), y(16, b), zero(16), got(16);
    std::fill(x.begin() + 8, x.end(), most), std::fill(y.begin() + 8, y.end(), std::ldexp(1.0f, -75));
    parallel_for(1, [&](int64_t, int) { row.kernels->fma(x.data(), y.data(), zero.data(), got.data(), 16); });
    CAPTURE(row.level);
    for (size_t i = 0; i < 16; ++i) CHECK(got[i] == (i < 8 ? kRounded : 0.0f));
  });
}
