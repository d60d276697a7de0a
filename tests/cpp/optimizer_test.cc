// levels: lion and sgd rows against their double references, the bf16 moment, and the sweep of each bit-equal.
#include <cstring>
#include <limits>

#include "compare.h"
#include "make_elementwise.h"
#include "mudd/base/check.h"
#include "mudd/base/parallel.h"
#include "mudd/kernels/gemm/gemm.h"
#include "mudd/optim/lion/reference.h"
#include "mudd/optim/sgd/reference.h"
#include "mudd/optim/update.h"

using namespace mudd;
using namespace mudd::test;

namespace {

constexpr double kBeta1 = 0.9, kBeta2 = 0.95, kLr = 1e-2, kDecay = 1e-3, kScale = 0.25;

const OptimizerSpec &kLion = optimizer_spec("lion"), &kSgd = optimizer_spec("sgd");

// All elementwise optimizers.
std::vector<const OptimizerSpec*> elementwise() {
  std::vector<const OptimizerSpec*> found;
  for (const OptimizerSpec* spec : optimizer_specs())
    if (!spec->rows.empty()) found.push_back(spec);
  return found;
}

// An optimizer with the settings of this test, and those in `more`.
std::unique_ptr<Elementwise> made(const OptimizerSpec& spec, DType moment = DType::f32,
                                  const OptionValues& more = {}) {
  OptionValues given = more;
  const OptionValues all = {{"beta1", kBeta1}, {"beta2", kBeta2}, {"momentum", kBeta1}};
  for (const auto& [name, value] : all)
    if (option::find(spec.settings, name)) given.emplace(name, value);
  return make_elementwise(spec.name, given, moment);
}

UpdateFactors factors(const OptimizerSpec& spec, const OptionValues& more = {}) {
  UpdateParameter p;
  p.lr = kLr, p.decay = kDecay;
  return made(spec, DType::f32, more)->factors(p, 3, kScale);
}

template <class Reference>
void follow(const KernelRow<UpdateKernels>& row, const OptimizerSpec& optimizer, Reference reference,
            const OptionValues& more = {}) {
  for (int64_t n : {0, 1, 7, 8, 9, 15, 16, 17, 33}) {
    std::vector<float> w = numbers(1, n), m(w.size());
    auto exact_w = widen(w), exact_m = widen(m);
    for (uint64_t t = 1; t <= 20; ++t) {
      const std::vector<float> g0 = numbers(10 + t, n), g1 = numbers(50 + t, n);
      std::vector<double> g(w.size());
      for (size_t i = 0; i < g.size(); ++i) g[i] = (g0[i] + double(g1[i])) * kScale;
      const float* grads[] = {g0.data(), g1.data()};
      row.kernels->update(n, w.data(), m.data(), nullptr, grads, 2, factors(optimizer, more));
      reference(n, exact_w.data(), exact_m.data(), g.data());
    }
    CHECK(distance(w, exact_w, w.size()) <= tolerance("optimizer.state"));
    CHECK(distance(m, exact_m, m.size()) <= tolerance("optimizer.state"));
  }
}

// bf16 by rounding to nearest even, and back.
float through_bf16(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  bits = (bits + 0x7fff + ((bits >> 16) & 1)) & 0xffff0000u;
  std::memcpy(&x, &bits, 4);
  return x;
}

}  // namespace

TEST_CASE("lion and sgd rows follow their double references for 20 updates") {
  for_each_row(kLion.rows, [](const auto& row) {
    follow(row, kLion, [](int64_t n, double* w, double* m, const double* g) {
      reference::lion(n, w, m, g, kLr, kBeta1, kBeta2, kDecay);
    });
  });
  for_each_row(kSgd.rows, [](const auto& row) {
    follow(row, kSgd, [](int64_t n, double* w, double* m, const double* g) {
      reference::sgd(n, w, m, g, kLr, kBeta1, kDecay);
    });
    follow(row, kSgd,
           [](int64_t n, double* w, double* m, const double* g) {
             reference::sgd(n, w, m, g, kLr, kBeta1, kDecay, false);
           },
           {{"nesterov", false}});
  });
}

TEST_CASE("a bf16 moment is rounded when stored, the update sees it unrounded") {
  for (const OptimizerSpec* optimizer : elementwise()) {
    for_each_row(optimizer->rows, [&](const auto& row) {
      for (int64_t n : {1, 8, 17, 33}) {
        std::vector<float> w = numbers(1, n), w16 = w, v(w.size()), v16 = v, m(w.size());
        std::vector<bf16> m16(w.size());
        for (uint64_t t = 1; t <= 5; ++t) {
          const std::vector<float> g = numbers(t + 10, n);
          const float* grads[] = {g.data()};
          row.kernels->update(n, w.data(), m.data(), v.data(), grads, 1, factors(*optimizer));
          row.kernels->update_bf16(n, w16.data(), m16.data(), v16.data(), grads, 1, factors(*optimizer));
          for (float& x : m) x = through_bf16(x);
          CHECK(w == w16);
          CHECK(v == v16);
          for (size_t i = 0; i < m.size(); ++i) {
            const uint32_t bits = uint32_t{m16[i].bits} << 16;
            CHECK(std::memcmp(&bits, &m[i], 4) == 0);
          }
        }
      }
    });
  }
}

TEST_CASE("the sweep says whether all that it wrote is finite, wherever the bad number is") {
  const float bad[] = {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()};
  for (const OptimizerSpec* optimizer : elementwise()) {
    UpdateFactors f = factors(*optimizer);
    f.eps = 0;  // lanes after the last element are then 0 / 0
    for_each_row(optimizer->rows, [&](const auto& row) {
      for (const int64_t n : {1, 8, 17, 33}) {
        const size_t planes = optimizer->moments + 1;
        for (int64_t at = -1; at < n; ++at)
          for (size_t plane = 0; plane < planes; ++plane)
            for (const float number : bad) {
              std::vector<float> values[] = {numbers(1, n), numbers(2, n), std::vector<float>(n, 1.0f)};
              const std::vector<float> g = numbers(3, n);
              const float* grads[] = {g.data()};
              if (at >= 0) values[plane][at] = number;
              std::vector<bf16> m16(n);
              for (int64_t i = 0; i < n; ++i) {
                uint32_t bits;
                std::memcpy(&bits, &values[1][i], 4);
                m16[i].bits = static_cast<uint16_t>(bits >> 16);
              }
              std::vector<float> w16 = values[0], v16 = values[2];
              CHECK(row.kernels->update_bf16(n, w16.data(), m16.data(), v16.data(), grads, 1, f) == (at < 0));
              CHECK(row.kernels->update(n, values[0].data(), values[1].data(), values[2].data(), grads, 1, f) ==
                    (at < 0));
            }
      }
      // The largest float is infinity as a bf16.
      std::vector<float> w(1), v(1, 1.0f), m(1);
      std::vector<bf16> m16(1);
      const float largest = std::numeric_limits<float>::max(), *grads[] = {&largest};
      UpdateFactors still{.beta1 = 1, .beta2 = 1, .one_minus_beta2 = 0, .eps = 1};
      if (optimizer == &kLion) still.one_minus_beta2 = 1;
      CHECK(row.kernels->update(1, w.data(), m.data(), v.data(), grads, 1, still));
      CHECK(m[0] == largest);
      CHECK_FALSE(row.kernels->update_bf16(1, w.data(), m16.data(), v.data(), grads, 1, still));
    });
  }
}

TEST_CASE("update reports one bad number among many tasks and threads") {
  for (const int threads : {1, 3}) {
    set_num_threads(threads);
    const int64_t rows = 200, cols = 1500;
    for (const int64_t at : {int64_t{-1}, int64_t{0}, rows * cols / 2, rows * cols - 1}) {
      std::vector<float> w = numbers(1, rows * cols), m(w.size()), g = numbers(2, rows * cols);
      if (at >= 0) w[at] = std::numeric_limits<float>::infinity();
      UpdateParameter p;
      p.rows = rows, p.cols = cols, p.w = w.data(), p.m = m.data(), p.lr = kLr;
      p.grads[0] = g.data(), p.n_grads = 1;
      CHECK(made(kSgd)->update({&p, 1}, 1, kScale, nullptr) == (at < 0));
    }
  }
  set_num_threads(0);
}

TEST_CASE("update with one moment or a bf16 one: packs fresh, any thread count gives the same bits") {
  for (const OptimizerSpec* optimizer : elementwise())
    for (const DType moment : {DType::f32, DType::bf16}) {
      if (optimizer->moments > 1) continue;
      std::vector<float> first;
      for (int threads : {1, 2, 3}) {
        set_num_threads(threads);
        const int64_t rows = 200, cols = 1500;
        std::vector<float> w = numbers(1, rows * cols),
                           packed(static_cast<size_t>(packed_bytes(rows, cols)) / sizeof(float));
        std::vector<float> m(w.size()), g = numbers(2, rows * cols);
        UpdateParameter p;
        p.rows = rows, p.cols = cols, p.w = w.data(), p.m = m.data(), p.lr = kLr;
        p.grads[0] = g.data(), p.n_grads = 1, p.packed_plain = packed.data();
        for (int t = 1; t <= 3; ++t) made(*optimizer, moment)->update({&p, 1}, t, kScale, nullptr);
        std::vector<float> fresh(packed.size());
        pack_weight(w.data(), rows, cols, false, fresh.data());
        CHECK(fresh == packed);
        if (first.empty()) first = w;
        CHECK(first == w);
      }
    }
  set_num_threads(0);
}

TEST_CASE("names of optimizers") {
  for (const char* name : {"adamw", "adam_pax"}) CHECK(make_optimizer(name)->spec().moments == 2);
  for (const char* name : {"lion", "sgd", "muon"}) CHECK(make_optimizer(name)->spec().moments == 1);
  for (const char* name : {"adamw", "lion", "sgd"}) CHECK_FALSE(optimizer_spec(name).whole_matrices);
  CHECK(optimizer_spec("muon").whole_matrices);
  CHECK_THROWS_AS(make_optimizer("adam"), Error);
  CHECK_THROWS_AS(make_optimizer("sgd", {}, DType::i32), Error);
}

TEST_CASE("settings are checked against the spec: name, type, bounds, choices") {
  const auto fails = [](const char* optimizer, const char* name, const OptionValue& value, const char* message) {
    CHECK_THROWS_WITH_AS(make_optimizer(optimizer, {{name, value}}), message, Error);
  };
  fails("sgd", "beta1", 0.5, "[sgd] option 'beta1' is unknown; known: momentum, nesterov");
  fails("lion", "beta1", 1.0, "[lion] beta1: expected a number in [0, 1), got 1");
  fails("adamw", "beta2", -0.5, "[adamw] beta2: expected a number in [0, 1), got -0.5");
  fails("adamw", "beta2", true, "[adamw] beta2: expected a number, got True");
  fails("sgd", "nesterov", 1.0, "[sgd] nesterov: expected a bool, got 1");
  fails("muon", "steps", int64_t{100}, "[muon] steps: expected 1 to 99, got 100");
  fails("muon", "adjust_lr", "other", "[muon] adjust_lr: expected match_rms_adamw or original, got 'other'");
  CHECK(OptimizerSettings(kLion, {{"beta1", int64_t{0}}}).number("beta1") == 0);
  CHECK(OptimizerSettings(kLion).number("beta2") == 0.95);
}
