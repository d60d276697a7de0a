// levels, units: grouped_gemm with adapters of experts: against merged weights in double, slopes by complex step,
// no effect of a zero B, threads and shards bit-equal, experts packed one by one.
#include <complex>

#include "compare.h"
#include "moe_runner.h"
#include "mudd/base/parallel.h"
#include "mudd/ops/grouped_gemm/reference.h"

using namespace mudd;
using namespace mudd::test;

namespace {

constexpr double kScale = 1.75;

// Operands in the order of the op's inputs: x, gates, gate, up, down, then A and B of both adapters.
struct Case {
  int64_t samples = 2, tokens = 9, d = 13, f = 21, experts = 5, k = 2, rank = 3;
  bool gate_up = true, down = true;
  DType compute = DType::f32;
  int64_t packed_at_once = 1 << 28;

  int64_t rows() const { return samples * tokens; }
  std::vector<int64_t> sizes() const {
    const int64_t stack = experts * d * f, low = experts * rank;
    return {rows() * d,     rows() * k,    stack, stack, stack, gate_up * low * d, gate_up * 2 * low * f,
            down * low * f, down * low * d};
  }
  std::vector<Floats> operands() const {
    std::vector<Floats> all;
    for (int64_t size : sizes()) all.push_back(numbers(static_cast<unsigned>(all.size() + 1), size));
    if (compute == DType::bf16)
      for (size_t i = 0; i < 5; ++i) all[i] = i == 1 ? all[i] : rounded(all[i]);
    return all;
  }
  Ints chosen() const {
    Ints found;
    for (int64_t i = 0; i < rows() * k; ++i) found.push_back(static_cast<int32_t>((i * 7 + i / 5) % experts));
    found[4] = found[5] = -1;
    for (int32_t& e : found) e = e == 3 ? 1 : e;  // an expert without rows
    return found;
  }
  Runner runner(const std::vector<Floats>& o, int shards, const Ints& experts_of) const {
    const auto at = [&](size_t i) -> const void* { return o[i].empty() ? nullptr : o[i].data(); };
    return Runner("grouped_gemm", attributes({{"scale", kScale}, {"packed_at_once", packed_at_once}}),
                  {{{{samples, tokens, d}}, at(0)},
                   {{{samples, tokens, k}}, at(1)},
                   {{{samples, tokens, k}, DType::i32}, experts_of.data()},
                   {{{experts, d, f}}, at(2)},
                   {{{experts, d, f}}, at(3)},
                   {{{experts, f, d}}, at(4)},
                   {{{samples, tokens, d}}, nullptr},
                   {{{experts, d, rank}}, at(5)},
                   {{{experts, 2 * rank, f}}, at(6)},
                   {{{experts, f, rank}}, at(7)},
                   {{{experts, rank, d}}, at(8)}},
                  Shards::cut(samples, shards), compute);
  }
  template <class N>
  std::vector<N> reference(const std::vector<std::vector<N>>& o) const {
    std::vector<N> w[3] = {o[2], o[3], o[4]}, y(static_cast<size_t>(rows() * d));
    for (int64_t part = 0; part < 2 && gate_up; ++part)
      w[part] = reference::adapted_stack(experts, d, f, rank, 2, part, kScale, w[part], o[5].data(), o[6].data());
    if (down) w[2] = reference::adapted_stack(experts, f, d, rank, 1, 0, kScale, w[2], o[7].data(), o[8].data());
    const Ints slots = chosen();
    reference::grouped_gemm(rows(), k, d, f, Activation::silu, true, o[0].data(), o[1].data(), slots.data(),
                            w[0].data(), w[1].data(), w[2].data(), static_cast<const N*>(nullptr), y.data());
    return y;
  }
  // The gradients in the order of the operands, and y.
  std::vector<Floats> run(int shards = 2) const {
    const auto o = operands();
    const Ints slots = chosen();
    Runner runner_ = runner(o, shards, slots);
    runner_.node->forward(runner_.run);
    const Floats dy = gradient(), y = runner_.out(0);
    const auto all = runner_.backward({dy.data()});
    std::vector<Floats> got;
    for (size_t i : {0, 1, 3, 4, 5, 7, 8, 9, 10}) got.push_back(all[i]);
    got.push_back(y);
    return got;
  }
  Floats gradient() const {
    const Floats dy = numbers(19, rows() * d);
    return compute == DType::bf16 ? rounded(dy) : dy;
  }
  // <dy, y> moved along one element of one operand.
  double slope(size_t operand, size_t index) const {
    std::vector<std::vector<std::complex<double>>> o;
    for (const Floats& v : operands()) o.emplace_back(v.begin(), v.end());
    o[operand][index] += std::complex<double>(0, 1e-20);
    const auto y = reference(o);
    const Floats dy = gradient();
    double sum = 0;
    for (size_t i = 0; i < y.size(); ++i) sum += y[i].imag() * static_cast<double>(dy[i]);
    return sum / 1e-20;
  }
};

void check_case(const Case& c, const char* values, const char* gradients) {
  CAPTURE(c.rank);
  std::vector<std::vector<double>> wide;
  for (const Floats& v : c.operands()) wide.push_back(widen(v));
  const auto got = c.run();
  CHECK(distance(got.back(), c.reference(wide), got.back().size()) <= tolerance(values));
  for (size_t o = 0; o + 1 < got.size(); ++o) {
    CAPTURE(o);
    const Floats& g = got[o];
    CHECK(g.size() == c.operands()[o].size());
    double largest = 1;
    for (float v : g) largest = std::max(largest, std::fabs(static_cast<double>(v)));
    for (size_t i = 0; i < g.size(); i += 1 + g.size() / 23)
      CHECK(std::fabs(g[i] - c.slope(o, i)) <= tolerance(gradients) * largest);
  }
}

}  // namespace

TEST_CASE("adapters of experts equal merged weights, of gate and up, of down, or of both") {
  for (int which = 0; which < 4; ++which)
    check_case({.gate_up = (which & 1) != 0, .down = (which & 2) != 0}, "grouped_gemm.y",
               "grouped_gemm.gradients");
  check_case({.d = 1, .f = 1, .experts = 4, .k = 1, .rank = 1}, "grouped_gemm.y", "grouped_gemm.gradients");
  check_case({.tokens = 60, .d = 20, .f = 300, .experts = 4, .rank = 17}, "grouped_gemm.y",
             "grouped_gemm.gradients");  // several slices of columns and blocks of rows
}

TEST_CASE("adapters of experts in bf16 are near the reference of rounded operands") {
  check_case({.rank = 4, .compute = DType::bf16}, "grouped_gemm.bf16_y", "grouped_gemm.bf16_gradients");
  check_case({.tokens = 40, .d = 24, .f = 280, .experts = 4, .rank = 8, .compute = DType::bf16},
             "grouped_gemm.bf16_y", "grouped_gemm.bf16_gradients");
}

TEST_CASE("adapters of experts: threads and experts packed one by one change no bit, in fp32 and in bf16") {
  for (DType compute : {DType::f32, DType::bf16}) {
    Case c{.samples = 8, .tokens = 50, .d = 40, .f = 56, .experts = 4, .rank = 6, .compute = compute};
    const auto want = c.run(8);
    for (int threads : {1, 2, 3}) {
      set_num_threads(threads);
      CHECK(c.run(8) == want);
    }
    set_num_threads(0);
    c.packed_at_once = 0;
    CHECK(c.run(8) == want);
  }
}

TEST_CASE("adapters of experts whose B is zero leave y as it was") {
  const Case c;
  Case plain = c;
  plain.gate_up = plain.down = false;
  auto o = c.operands();
  for (size_t i : {6, 8}) std::fill(o[i].begin(), o[i].end(), 0.0f);
  const Ints slots = c.chosen();
  Runner low = c.runner(o, 2, slots), bare = plain.runner(plain.operands(), 2, slots);
  low.node->forward(low.run);
  bare.node->forward(bare.run);
  CHECK(low.out(0) == bare.out(0));
}

TEST_CASE("adapters of experts of other shapes are refused") {
  Case c;
  const auto o = c.operands();
  const Ints slots = c.chosen();
  auto half = o;
  half[6].clear();
  CHECK_THROWS_WITH_AS(c.runner(half, 1, slots),
                       "[grouped_gemm] gate_up_a: expected both gate_up_a and gate_up_b, or neither, got one",
                       Error);
  c.rank = 4;
  CHECK_NOTHROW(c.runner(c.operands(), 1, slots));
}
