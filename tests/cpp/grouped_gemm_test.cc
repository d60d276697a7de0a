// levels, units: grouped_gemm against its reference, slopes by complex step, empty and overfull experts, shards
// and threads bit-equal, slots in order.
#include <algorithm>
#include <complex>
#include <cstring>

#include "compare.h"
#include "moe_runner.h"
#include "mudd/base/parallel.h"
#include "mudd/kernels/gemm/gemm.h"
#include "mudd/ops/grouped_gemm/grouped_gemm.h"
#include "mudd/ops/grouped_gemm/reference.h"
#include "mudd/ops/grouped_gemm/slots.h"

using namespace mudd;
using namespace mudd::test;

namespace {

struct Experts {
  int64_t samples, tokens, d, f, experts, k;
  Floats x, gates, wg, wu, wd;
  Ints chosen;

  Experts(int64_t samples_, int64_t t, int64_t d_, int64_t f_, int64_t e, int64_t k_)
      : samples(samples_),
        tokens(t),
        d(d_),
        f(f_),
        experts(e),
        k(k_),
        x(numbers(1, rows() * d)),
        gates(numbers(2, rows() * k)),
        wg(numbers(3, e * d * f)),
        wu(numbers(4, e * d * f)),
        wd(numbers(5, e * d * f)) {
    for (int64_t i = 0; i < rows() * k; ++i) chosen.push_back(static_cast<int32_t>((i * 7 + i / 5) % e));
  }
  int64_t rows() const { return samples * tokens; }
  Runner runner(Shards cut, const char* full_drop = "passthrough", DType compute = DType::f32, bool narrow = false,
                int64_t packed_at_once = 1 << 28) const {
    return Runner("grouped_gemm",
                  attributes({{"full_drop", std::string(full_drop)}, {"packed_at_once", packed_at_once}}),
                  {{{{samples, tokens, d}, narrow ? DType::bf16 : DType::f32}, x.data()},
                   {{{samples, tokens, k}}, gates.data()},
                   {{{samples, tokens, k}, DType::i32}, chosen.data()},
                   {{{experts, d, f}}, wg.data()},
                   {{{experts, d, f}}, wu.data()},
                   {{{experts, f, d}}, wd.data()}},
                  std::move(cut), compute, narrow);
  }
  template <class N>
  std::vector<N> reference(const std::vector<N>& x_, const std::vector<N>& g_, const std::vector<N>& a,
                           const std::vector<N>& b, const std::vector<N>& c, bool passthrough) const {
    std::vector<N> y(static_cast<size_t>(rows() * d));
    reference::grouped_gemm(rows(), k, d, f, Activation::silu, passthrough, x_.data(), g_.data(), chosen.data(),
                            a.data(), b.data(), c.data(), static_cast<const N*>(nullptr), y.data());
    return y;
  }
};

using Complex = std::complex<double>;
std::vector<Complex> complexes(const Floats& v) { return {v.begin(), v.end()}; }

// <dy, y> moved along one number of one operand, by complex step.
double slope(const Experts& c, int operand, size_t index, const Floats& dy, bool passthrough) {
  std::vector<Complex> o[5] = {complexes(c.x), complexes(c.gates), complexes(c.wg), complexes(c.wu),
                               complexes(c.wd)};
  o[operand][index] += Complex(0, 1e-20);
  const auto y = c.reference(o[0], o[1], o[2], o[3], o[4], passthrough);
  double sum = 0;
  for (size_t i = 0; i < y.size(); ++i) sum += y[i].imag() * static_cast<double>(dy[i]);
  return sum / 1e-20;
}

}  // namespace

TEST_CASE("grouped_gemm rows: backward of the gated unit, and the sums of a token") {
  for_each_row(grouped_gemm_rows(), [](const auto& row) {
    for (int64_t width : {1, 7, 8, 9, 16, 17, 67}) {
      const int64_t rows = 2;
      const Floats a = numbers(1, rows * width), b = numbers(2, rows * width), d = numbers(3, rows * width);
      const Floats scale = numbers(4, rows);
      Floats da = a, db = b, h = d, dscale(2);
      row.kernels->bwd(rows, width, Activation::silu,
                       {da.data(), db.data(), h.data(), scale.data(), dscale.data()});
      for (int64_t r = 0; r < rows; ++r) {
        double sum = 0;
        for (int64_t i = r * width; i < (r + 1) * width; ++i) {
          const auto u = static_cast<size_t>(i);
          const double act = reference::activate(Activation::silu, static_cast<double>(a[u]));
          const double slope = reference::activate_slope(Activation::silu, static_cast<double>(a[u]));
          const double g = static_cast<double>(scale[static_cast<size_t>(r)]) * d[u];
          CHECK(std::fabs(h[u] - scale[static_cast<size_t>(r)] * act * b[u]) <= tolerance("grouped_gemm.rows"));
          CHECK(std::fabs(da[u] - g * b[u] * slope) <= tolerance("grouped_gemm.rows"));
          CHECK(std::fabs(db[u] - g * act) <= tolerance("grouped_gemm.rows"));
          sum += act * b[u] * d[u];
        }
        CHECK(std::fabs(dscale[static_cast<size_t>(r)] - sum) <= tolerance("grouped_gemm.dgates"));
      }
      const float* parts[2] = {a.data(), b.data()};
      Floats y(static_cast<size_t>(width)), zero = y;
      row.kernels->combine(width, d.data(), parts, 2, y.data());
      for (size_t i = 0; i < y.size(); ++i) CHECK(y[i] == d[i] + (a[i] + b[i]));
      row.kernels->combine(width, nullptr, parts, 0, y.data());
      CHECK(y == zero);
    }
  });
}

TEST_CASE("the grouped_gemm node: values, all slopes, experts that are empty, overfull, or refused") {
  for (int layout = 0; layout < 4; ++layout) {
    Experts c(2, 9, 13, 21, 5, 2);
    if (layout == 1) std::fill(c.chosen.begin(), c.chosen.end(), 3);  // one expert has every slot
    if (layout == 2)
      for (size_t i = 0; i < c.chosen.size(); ++i) c.chosen[i] = i % 3 ? c.chosen[i] : -1;
    if (layout == 3) std::fill(c.chosen.begin(), c.chosen.end(), -1);  // nobody has any
    c.chosen[4] = c.chosen[5] = layout == 1 ? 3 : -1;
    for (bool passthrough : {true, false}) {
      Runner run = c.runner(Shards::cut(2, 2), passthrough ? "passthrough" : "zero");
      run.node->forward(run.run);
      const auto want =
          c.reference(widen(c.x), widen(c.gates), widen(c.wg), widen(c.wu), widen(c.wd), passthrough);
      CHECK(distance(run.out(0), want, want.size()) <= tolerance("grouped_gemm.y"));
      const Floats dy = numbers(9, c.rows() * c.d);
      const auto got = run.backward({dy.data()});
      const int inputs[5] = {0, 1, 3, 4, 5};
      for (int o = 0; o < 5; ++o) {
        const Floats& g = got[static_cast<size_t>(inputs[o])];
        for (size_t i = 0; i < g.size(); i += 1 + g.size() / 23) {
          const double exact = slope(c, o, i, dy, passthrough);
          CHECK(std::fabs(g[i] - exact) <= tolerance("grouped_gemm.gradients") * (1 + std::fabs(exact)));
        }
      }
    }
  }
  Experts c(1, 2, 3, 4, 5, 2);
  c.chosen[1] = 5;
  Runner run = c.runner(Shards{});
  CHECK_THROWS_WITH_AS(run.node->forward(run.run),
                       "[grouped_gemm] experts: expected numbers from -1 to 4, got 5 at token 0", Error);
}

TEST_CASE("grouped_gemm in bf16: near the reference of rounded operands, memory in bf16 rounds the bits of fp32") {
  for (int layout = 0; layout < 5; ++layout) {
    Experts c = layout == 4 ? Experts(8, 30, 40, 24, 3, 2) : Experts(2, 9, 13, 21, 5, 2);
    if (layout == 1) std::fill(c.chosen.begin(), c.chosen.end(), 3);
    if (layout == 2)
      for (size_t i = 0; i < c.chosen.size(); ++i) c.chosen[i] = i % 3 ? c.chosen[i] : -1;
    if (layout == 3) std::fill(c.chosen.begin(), c.chosen.end(), -1);
    c.chosen[4] = c.chosen[5] = -1;
    for (Floats* v : {&c.x, &c.wg, &c.wu, &c.wd}) *v = rounded(*v);
    const Floats dy = rounded(numbers(9, c.rows() * c.d));
    const auto all = [&](bool narrow) {
      Runner run = c.runner(Shards::cut(c.samples, 2), "passthrough", DType::bf16, narrow);
      run.node->forward(run.run);
      std::vector<Floats> got = run.backward({dy.data()});
      got.push_back(rounded(run.out(0)));
      got[0] = rounded(got[0]);
      return got;
    };
    const auto want = all(false);
    for (int threads : {1, 3}) {
      set_num_threads(threads);
      CHECK(all(true) == want);
    }
    set_num_threads(0);
    const auto y = c.reference(widen(c.x), widen(c.gates), widen(c.wg), widen(c.wu), widen(c.wd), true);
    CHECK(distance(want.back(), y, y.size()) <= tolerance("grouped_gemm.bf16_y"));
    const int inputs[5] = {0, 1, 3, 4, 5};
    for (int o = 0; o < 5; ++o) {
      const Floats& g = want[static_cast<size_t>(inputs[o])];
      double largest = 0;
      for (float v : g) largest = std::max(largest, std::fabs(static_cast<double>(v)));
      for (size_t i = 0; i < g.size(); i += 1 + g.size() / 23)
        CHECK(std::fabs(g[i] - slope(c, o, i, dy, true)) <= tolerance("grouped_gemm.bf16_gradients") * largest);
    }
  }
}

TEST_CASE("grouped_gemm: the same bits for any thread count, and for rows and shards cut elsewhere") {
  const Experts c(8, 70, 40, 56, 4, 2);
  const Floats dy = numbers(9, c.rows() * c.d);
  std::vector<Floats> first;
  for (int threads : {1, 2, 3}) {
    set_num_threads(threads);
    Runner run = c.runner(Shards::cut(8, 8));
    run.node->forward(run.run);
    std::vector<Floats> got = run.backward({dy.data()});
    got.push_back(run.out(0));
    if (first.empty()) first = got;
    CHECK(got == first);
  }
  set_num_threads(0);
  // Half of the samples at a time: rows keep their bits, and the halves' sums are the two children of the tree.
  std::vector<Floats> sums;
  for (int half = 0; half < 2; ++half) {
    Experts part = c;
    part.samples = 4;
    const auto cut = [&](Floats& v, int64_t width) {
      v = Floats(v.begin() + half * part.rows() * width, v.begin() + (half + 1) * part.rows() * width);
    };
    cut(part.x, c.d);
    cut(part.gates, c.k);
    part.chosen =
        Ints(c.chosen.begin() + half * part.rows() * c.k, c.chosen.begin() + (half + 1) * part.rows() * c.k);
    Runner run = part.runner(Shards::cut(4, 4));
    run.node->forward(run.run);
    const auto got = run.backward({dy.data() + half * part.rows() * c.d});
    const Floats y = run.out(0);
    const auto same = [&](const Floats& mine, const Floats& whole) {
      return std::equal(mine.begin(), mine.end(), whole.begin() + half * static_cast<int64_t>(mine.size()));
    };
    CHECK(same(y, first.back()));
    CHECK(same(got[0], first[0]));
    CHECK(same(got[1], first[1]));
    for (int i : {3, 4, 5}) sums.push_back(got[static_cast<size_t>(i)]);
  }
  for (size_t i = 0; i < 3; ++i)
    for (size_t j = 0; j < sums[i].size(); ++j) CHECK(sums[i][j] + sums[i + 3][j] == first[i + 3][j]);
}

// Gives the node copies of all experts' weights.
void keep_packed(Runner& run, const Experts& c, DType compute) {
  for (int i : {3, 4, 5}) {
    const int64_t rows = i == 5 ? c.f : c.d, cols = i == 5 ? c.d : c.f;
    for (bool transposed : {false, true}) {
      const int64_t bytes = transposed ? packed_bytes(cols, rows, compute) : packed_bytes(rows, cols, compute);
      std::byte* to = run.room(c.experts * bytes);
      for (int64_t e = 0; e < c.experts; ++e)
        pack_weight(run.run.in_[i].cells() + e * rows * cols, rows, cols, transposed, to + e * bytes, compute);
      (transposed ? run.run.packed_transposed_ : run.run.packed_plain_)[i] = to;
    }
  }
}

TEST_CASE(
    "grouped_gemm: experts packed one by one or two at a time have the bits of all at once, in less scratch") {
  Experts c(4, 20, 24, 40, 5, 2);
  c.chosen[7] = c.chosen[8] = -1;
  std::replace(c.chosen.begin(), c.chosen.end(), 3, 1);  // an expert without rows
  const Floats dy = numbers(9, c.rows() * c.d);
  for (DType compute : {DType::f32, DType::bf16}) {
    const int64_t one = 3 * std::max(packed_bytes(c.d, c.f, compute), packed_bytes(c.f, c.d, compute));
    std::vector<std::vector<Floats>> results;
    std::vector<int64_t> scratch;
    for (int64_t packed_at_once : {int64_t{1} << 28, int64_t{0}, 2 * one}) {
      Runner run = c.runner(Shards::cut(4, 4), "passthrough", compute, false, packed_at_once);
      run.node->forward(run.run);
      results.push_back(run.backward({dy.data()}));
      results.back().push_back(run.out(0));
      scratch.push_back(run.needs.scratch_forward_);
      CHECK(results.back() == results.front());
    }
    Runner run = c.runner(Shards::cut(4, 4), "passthrough", compute, false, 0);
    keep_packed(run, c, compute);  // as a graph of fewer rows may have asked the store to
    run.node->forward(run.run);
    CHECK(run.out(0) == results.front().back());
    CHECK(run.backward({dy.data()})[0] == results.front()[0]);
    CHECK((scratch[1] <= scratch[0] - 4 * one && scratch[2] <= scratch[0] - 3 * one + 3 * 64));
  }
}

TEST_CASE("slots are sorted by expert, in order of tokens, cut by shards") {
  const Ints experts = {1, 0, 2, 1, -1, 1, 0, 2, 2, 1};
  const Floats gates = numbers(1, 10);
  std::vector<std::byte> memory(static_cast<size_t>(ExpertSlots::bytes(4, 10, 5)));
  const ExpertSlots slots(memory.data(), 4, 10, 5);
  slots.sort(Shards::cut(5, 8).count() == 4 ? Shards{{0, 1, 2, 3, 4, 5}} : Shards::cut(5, 5),
             {const_cast<int32_t*>(experts.data()), 5, 2, 2, DType::i32},
             {const_cast<float*>(gates.data()), 5, 2, 2, DType::f32});
  CHECK(slots.rows() == 9);
  CHECK(std::vector<int32_t>(slots.slot, slots.slot + 9) == Ints{1, 6, 0, 3, 5, 9, 2, 7, 8});
  CHECK(std::vector<int32_t>(slots.token, slots.token + 9) == Ints{0, 3, 0, 1, 2, 4, 1, 3, 4});
  CHECK(std::vector<int64_t>(slots.cuts_of(1), slots.cuts_of(1) + 6) == std::vector<int64_t>{2, 3, 4, 5, 5, 6});
  CHECK(slots.begin(3) == slots.end(3));
  CHECK(slots.place[4] == -1);
  CHECK((slots.blocks(2, 1, 3) == 4 && slots.block(3, 2, 1).expert == 2 && slots.block(3, 2, 1).begin == 8));
  CHECK((slots.blocks(2, 0, 4) == 5 && slots.block(2, 2, 0).expert == 1 && slots.block(2, 2, 0).begin == 4));
}
