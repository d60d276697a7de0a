// levels: adamw rows against the double reference over many steps; sweeps, packs, threads bit-equal.
#include "mudd/optim/adamw/adamw.h"

#include <cmath>
#include <cstring>

#include "compare.h"
#include "make_elementwise.h"
#include "mudd/base/check.h"
#include "mudd/base/parallel.h"
#include "mudd/kernels/gemm/gemm.h"
#include "mudd/optim/adamw/reference.h"
#include "mudd/optim/update.h"

using namespace mudd;
using namespace mudd::test;

namespace {

constexpr double kBeta1 = 0.9, kBeta2 = 0.95, kLr = 1e-2, kEps = 1e-8, kDecay = 1e-3, kScale = 0.25;

// One parameter with its own memory.
struct Store {
  int64_t rows, cols;
  std::vector<float> w, m, v, g0, g1, plain, transposed;

  Store(int64_t rows, int64_t cols, uint64_t seed, bool plain_pack, bool transposed_pack)
      : rows(rows),
        cols(cols),
        w(numbers(seed, rows * cols)),
        m(w.size()),
        v(w.size()),
        g0(numbers(seed + 1, rows * cols)),
        g1(numbers(seed + 2, rows * cols)),
        plain(plain_pack ? static_cast<size_t>(packed_bytes(rows, cols)) / sizeof(float) : 0),
        transposed(transposed_pack ? static_cast<size_t>(packed_bytes(cols, rows)) / sizeof(float) : 0) {}

  UpdateParameter parameter(int uses) {
    UpdateParameter p;
    p.rows = rows;
    p.cols = cols;
    p.w = w.data();
    p.m = m.data();
    p.v = v.data();
    p.grads[0] = g0.data();
    p.grads[1] = g1.data();
    p.n_grads = uses;
    p.packed_plain = plain.empty() ? nullptr : plain.data();
    p.packed_transposed = transposed.empty() ? nullptr : transposed.data();
    p.lr = kLr;
    p.decay = kDecay;
    p.eps = kEps;
    return p;
  }
};

std::unique_ptr<Elementwise> optimizer() {
  return make_elementwise("adamw", {{"beta1", kBeta1}, {"beta2", kBeta2}});
}

}  // namespace

TEST_CASE("adamw rows follow the double reference for 20 updates on every edge of the lanes") {
  for_each_row(optimizer_spec("adamw").rows, [](const auto& row) {
    for (int64_t n : {0, 1, 7, 8, 9, 15, 16, 17, 33})
      for (int uses : {1, 2}) {
        Store s(1, n, 10, false, false);
        auto w = widen(s.w), m = widen(s.m), v = widen(s.v);
        for (int64_t t = 1; t <= 20; ++t) {
          std::vector<double> g(s.w.size());
          for (size_t i = 0; i < g.size(); ++i) g[i] = (s.g0[i] + (uses == 2 ? double(s.g1[i]) : 0)) * kScale;
          UpdateParameter p = s.parameter(uses);
          row.kernels->update(n, p.w, static_cast<float*>(p.m), static_cast<float*>(p.v), p.grads, uses,
                              optimizer()->factors(p, t, kScale));
          reference::adamw(n, w.data(), m.data(), v.data(), g.data(), kLr, kBeta1, kBeta2, kEps, kDecay, t);
          s.g0 = numbers(static_cast<uint64_t>(100 + t), n);
        }
        CHECK(distance(s.w, w, s.w.size()) <= tolerance("adamw.w"));
        CHECK(distance(s.m, m, s.m.size()) <= tolerance("adamw.moments"));
        CHECK(distance(s.v, v, s.v.size()) <= tolerance("adamw.moments"));
      }
  });
}

TEST_CASE("a bf16 second moment has the bits after the offset of the update, which uses it unrounded") {
  for_each_row(optimizer_spec("adamw").rows, [](const auto& row) {
    for (int64_t n : {1, 7, 8, 9, 16, 17, 33}) {
      const auto size = static_cast<size_t>(n);
      std::vector<float> w = numbers(1, n), w16 = w, m(size), m16 = m, v(size);
      std::vector<bf16> v16(size), narrow(size), both(size);
      std::vector<float> w_both = w;
      for (int64_t t = 1; t <= 6; ++t) {
        const std::vector<float> g = numbers(static_cast<uint64_t>(t) + 10, n);
        const float* grads[] = {g.data()};
        UpdateParameter p;
        p.lr = kLr, p.decay = kDecay, p.eps = kEps;
        const UpdateFactors f = optimizer()->factors(p, t, kScale);
        CHECK(f.offset == 40503 * t % 65536);
        row.kernels->update(n, w.data(), m.data(), v.data(), grads, 1, f);
        CHECK(row.kernels->update_second(n, w16.data(), m16.data(), v16.data(), grads, 1, f));
        row.kernels->update_both(n, w_both.data(), narrow.data(), both.data(), grads, 1, f);
        CHECK(w == w16);
        CHECK(m == m16);
        for (size_t i = 0; i < size; ++i) {
          uint32_t bits;
          std::memcpy(&bits, &v[i], 4);
          bits = (bits + static_cast<uint32_t>(f.offset)) & 0xffff0000u;
          CHECK(v16[i].bits == bits >> 16);
          CHECK(both[i].bits == bits >> 16);
          std::memcpy(&v[i], &bits, 4);  // the next update starts from the stored value
        }
      }
    }
  });
}

TEST_CASE("a bf16 second moment follows the mean of squares where rounding to nearest would stay") {
  for_each_row(optimizer_spec("adamw").rows, [](const auto& row) {
    const auto slow = make_elementwise("adamw", {{"beta2", 0.999}});
    std::vector<float> w(9), m(9);
    std::vector<bf16> v(9);
    double exact = 0;
    for (int64_t t = 1; t <= 6000; ++t) {
      const float g0 = t <= 3000 ? 1.0f : 0.8f;
      const std::vector<float> g(9, g0);
      const float* grads[] = {g.data()};
      row.kernels->update_second(9, w.data(), m.data(), v.data(), grads, 1, slow->factors({}, t, 1));
      exact = 0.999 * exact + 0.001 * double(g0) * g0;
      if (t < 100) continue;
      const uint32_t bits = uint32_t{v[8].bits} << 16;
      float got;
      std::memcpy(&got, &bits, 4);
      CHECK(std::fabs(got - exact) <= 0x1p-6 * exact);  // two ulps of bf16
    }
  });
}

TEST_CASE("update: packs equal a fresh packing, any thread count gives the same bits, packs change no bit") {
  const int64_t nr = gemm_kernels().nr;
  std::vector<std::vector<float>> first;
  for (int threads : {1, 2, 3})
    for (bool packs : {true, false}) {
      set_num_threads(threads);
      std::vector<Store> stores;
      const int64_t shapes[][2] = {{1, 100000}, {nr, nr}, {1, 1},  {nr - 1, nr + 1}, {2 * nr + 1, 1024 + 3},
                                   {100, 3000}, {1, 17},  {257, 5}};
      for (uint64_t i = 0; i < std::size(shapes); ++i)
        stores.emplace_back(shapes[i][0], shapes[i][1], i + 2, packs, packs && i % 3 != 1);
      std::vector<UpdateParameter> parameters;
      for (Store& s : stores) parameters.push_back(s.parameter(1 + static_cast<int>(parameters.size()) % 2));
      parameters[4].packed_plain = nullptr;
      for (int64_t t = 1; t <= 3; ++t) optimizer()->update(parameters, t, kScale, nullptr);
      std::vector<std::vector<float>> got;
      for (Store& s : stores) {
        got.push_back(s.w);
        got.push_back(s.m);
        got.push_back(s.v);
        std::vector<float> fresh(s.plain.size());
        if (packs && &s != &stores[4]) {
          pack_weight(s.w.data(), s.rows, s.cols, false, fresh.data());
          CHECK(fresh == s.plain);
        }
        fresh.assign(s.transposed.size(), 0);
        if (!s.transposed.empty()) pack_weight(s.w.data(), s.rows, s.cols, true, fresh.data());
        CHECK(fresh == s.transposed);
      }
      if (first.empty()) first = got;
      CHECK(got == first);
    }
  set_num_threads(0);
}

TEST_CASE("bias corrections and refusals") {
  CHECK(bias_correction(0.9, 1) == 1 - 0.9);
  CHECK(std::fabs(bias_correction(0.999, 1000) - (1 - std::pow(0.999, 1000))) < 1e-15);
  CHECK(bias_correction(0.999, 10000000) == 1);
  CHECK_THROWS_AS(bias_correction(0.9, 0), Error);
  CHECK_THROWS_AS(bias_correction(1.0, 1), Error);
  Store s(1, 4, 1, false, false);
  UpdateParameter p = s.parameter(0);
  CHECK_THROWS_AS(optimizer()->update({&p, 1}, 1, kScale, nullptr), Error);
}
