// levels, units: pattention gives the same bits with any threads, blocks of rows, recomputed scores, projections
// alone or together, micro-batches, and memory in bf16.
#include "mudd/base/parallel.h"
#include "pattention_runner.h"

using namespace mudd;
using namespace mudd::test;
using namespace mudd::test::pattention;

TEST_CASE("the same bits for any thread count, block of rows, stride, and with scores computed again") {
  Case c{.samples = 4, .t = 150, .d_in = 40, .n = 70, .d_out = 50};
  const auto in = inputs(c);
  const Floats dy = numbers(7, c.rows() * c.d_out);
  std::vector<Floats> first;
  for (int threads : {1, 2, 3, 8}) {  // 600 rows: blocks of 48 on few threads, one block on eight
    set_num_threads(threads);
    for (bool keep : {true, false}) {
      c.keep_scores = keep;
      const auto got = everything(c, in, dy, threads);
      if (first.empty()) first = got;
      CHECK(got == first);
    }
  }
  set_num_threads(0);
}

TEST_CASE("projections of one x are the projections alone, and their dx is the sum") {
  const Case c{.residual = false, .groups = 3};
  const auto in = inputs(c);
  const Floats dy = numbers(7, c.rows() * c.d_out);
  NodeRunner all = runner(c, in);
  for (int g = 0; g < 3; ++g) {
    Case one = c;
    one.groups = 1;
    std::vector<Floats> own{in[0]};
    for (int i = 0; i < 4; ++i) own.push_back(in[static_cast<size_t>((g == 0 ? 1 : 2 + 4 * g) + i)]);
    own.push_back({});
    NodeRunner alone = runner(one, own);
    CHECK(all.forward(g) == alone.forward());
    if (g > 0) continue;  // only the first output has a gradient here: the others count as zero
    const auto got = all.backward(dy), want = alone.backward(dy);
    for (size_t i : {0, 1, 2, 3, 4}) CHECK(got[i] == want[i]);
    for (size_t i = 6; i < got.size(); ++i) CHECK(got[i] == Floats(got[i].size(), 0.0f));
  }
}

TEST_CASE("two runs of half the shards add up to the bits of one run") {
  Case whole;
  const auto in = inputs(whole);
  const Floats dy = numbers(7, whole.rows() * whole.d_out);
  const auto want = everything(whole, in, dy);
  Case half = whole;
  half.samples = 2;
  std::vector<Floats> sum(6);
  for (int64_t h = 0; h < 2; ++h) {
    const auto part = [&](const Floats& v, int64_t cols) {
      const int64_t size = half.rows() * cols;
      return Floats(v.begin() + h * size, v.begin() + (h + 1) * size);
    };
    auto own = in;
    own[0] = part(in[0], whole.d_in);
    own[5] = part(in[5], whole.d_out);
    NodeRunner run = runner(half, own, 2);
    CHECK(run.forward() == part(want[0], whole.d_out));
    sum[0].clear();
    const auto got = run.backward(part(dy, whole.d_out), sum);
    CHECK(got[0] == part(want[1], whole.d_in));
    sum = {{}, got[1], got[2], got[3], got[4], {}};
  }
  for (size_t i = 1; i < 5; ++i) CHECK(sum[i] == want[i + 1]);
}

TEST_CASE("bf16: near the reference of rounded operands; memory in bf16 gives the bits of fp32 rounded once") {
  for (int kind = 0; kind < 12; ++kind) {
    CAPTURE(kind);
    const Case c{.t = 5,
                 .n = 33,
                 .norm = static_cast<SlotNorm>(kind / 2),
                 .gelu = kind % 2 ? Activation::gelu_erf : Activation::gelu_tanh,
                 .biases = kind % 3 != 0,
                 .residual = kind % 4 == 0};
    auto in = inputs(c);
    for (size_t i : {0, 1, 2}) in[i] = rounded(in[i]);
    const Floats dy = rounded(numbers(7, c.rows() * c.d_out));
    const auto got = everything_bf16(c, in, dy, true);
    CHECK(got == everything_bf16(c, in, dy, false));
    std::vector<std::vector<double>> wide;
    for (const Floats& v : in) wide.push_back(widen(v));
    // Roundings of A, S and y; then of dA and dx.
    CHECK(distance(got[0], reference_of(c, wide), got[0].size()) <= tolerance("pattention.bf16_y"));
    for (size_t i : {0, 1, 2, 3, 4}) {
      if (in[i].empty()) continue;
      CAPTURE(i);
      CHECK(distance(got[i + 1], gradient(c, in, dy, i), got[i + 1].size()) <=
            tolerance("pattention.bf16_gradients"));
    }
  }
}

TEST_CASE("bf16: several projections, dropped samples, scores computed again, blocks of rows, threads") {
  const auto check = [](Case c) {
    auto in = inputs(c);
    in[0] = rounded(in[0]);
    const Floats dy = rounded(numbers(7, c.rows() * c.d_out));
    const auto want = everything_bf16(c, in, dy, false);
    for (int threads : {1, 3})
      for (bool keep : {true, false}) {
        set_num_threads(threads);
        c.keep_scores = keep;
        CHECK(everything_bf16(c, in, dy, true, threads) == want);
      }
    set_num_threads(0);
  };
  check({.samples = 1, .t = 1, .d_in = 1, .n = 1, .d_out = 1, .residual = false});
  check({.residual = false, .groups = 3});
  check({.samples = 8, .t = 2, .residual = false, .drop_path = 0.4});
  check({.samples = 8, .t = 2, .drop_path = 0.4});
  check({.samples = 4, .t = 150, .d_in = 40, .n = 70, .d_out = 50, .residual = false, .groups = 2});
}
