// levels: rope rows against the double reference, the node's positions, gradients, in-place form and threads.
#include "mudd/ops/rope/rope.h"
#include "compare.h"
#include "head_node.h"
#include "mudd/base/check.h"
#include "mudd/base/parallel.h"
#include "mudd/ops/rope/reference.h"

using namespace mudd;
using namespace mudd::test;

namespace {

std::vector<double> wanted(const std::vector<float>& x, const std::vector<int32_t>& positions, int64_t heads,
                           int64_t dim, int64_t pairs, const RopeFrequencies& f) {
  std::vector<double> y(x.size());
  reference::rope<double>(static_cast<int64_t>(positions.size()), heads, dim, pairs, f, positions.data(),
                          widen(x).data(), y.data());
  return y;
}

std::vector<int32_t> counted(int64_t batch, int64_t time, int32_t first = 0) {
  std::vector<int32_t> p;
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t t = 0; t < time; ++t) p.push_back(first + static_cast<int32_t>(t));
  return p;
}

}  // namespace

TEST_CASE("rope rows equal the reference on every edge of the lanes, in place and added") {
  for_each_row(rope_rows(), [](const auto& row) {
    for (int64_t dim : {2, 6, 14, 16, 18, 32, 34, 66, 80})
      for (int64_t pairs : {int64_t{0}, dim / 4, dim / 2}) {
        const int64_t rows = 5, heads = 3, n = rows * heads * dim;
        std::vector<float> table(64 * 2 * pairs + 1);
        rope_table(64, pairs, {}, table.data());
        const std::vector<int32_t> positions = {0, 63, 7, 7, 31};
        const auto x = numbers(1, n);
        const auto want = wanted(x, positions, heads, dim, pairs, {});
        RopeBlock block;
        block.end = rows, block.heads = heads, block.dim = dim, block.pairs = pairs;
        block.positions = positions.data(), block.table = table.data();
        block.x_row = block.y_row = heads * dim, block.x_head = block.y_head = dim;
        std::vector<float> y(x.size(), kPoison), in_place = x, added(x.size(), 1.0f);
        block.x = x.data(), block.y = y.data();
        row.kernels->rotate(block);
        CHECK(distance(y, want, y.size()) <= tolerance("rope.y"));
        block.x = block.y = in_place.data();
        row.kernels->rotate(block);
        CHECK(in_place == y);
        block.negative = true;  // and back again
        row.kernels->rotate(block);
        CHECK(distance(in_place, x, x.size()) <= tolerance("rope.back"));
        block.negative = false, block.accumulate = true, block.x = x.data(), block.y = added.data();
        row.kernels->rotate(block);
        for (size_t i = 0; i < added.size(); ++i) CHECK(added[i] == doctest::Approx(1.0 + want[i]).epsilon(1e-6));
      }
  });
}

TEST_CASE("rope nodes: index, positions, cache length, four axes, gradients, threads") {
  const int64_t batch = 3, time = 70, heads = 2, dim = 20;
  const auto x = numbers(2, batch * time * heads * dim), dy = numbers(3, x.size());
  HeadNode plain("rope", {{"n_head", heads}}, {Value({batch, time, heads * dim}, x, 7)});
  const auto y = plain.forward();
  CHECK(distance(y, wanted(x, counted(batch, time), heads, dim, dim / 2, {}), y.size()) <= tolerance("rope.y"));
  HeadNode axes("rope", {}, {Value({batch, time, heads, dim}, x, 4)});
  CHECK(axes.forward() == y);
  for (int threads : {1, 2, 3}) {
    set_num_threads(threads);
    CHECK(plain.forward() == y);
  }
  set_num_threads(0);

  // <dy, R x> = <R^T dy, x>
  const auto dx = plain.backward(dy, 1, false)[0];
  double left = 0, right = 0;
  for (size_t i = 0; i < x.size(); ++i) left += double(dy[i]) * y[i], right += double(dx[i]) * x[i];
  CHECK(left == doctest::Approx(right).epsilon(1e-5));
  const auto added = plain.backward(dy, 1, true, 0.5f)[0];
  for (size_t i = 0; i < dx.size(); ++i) CHECK(added[i] == doctest::Approx(dx[i] + 0.5).epsilon(1e-5));

  auto positions = counted(batch, time);
  for (size_t i = 0; i < positions.size(); ++i) positions[i] = static_cast<int32_t>(i * 37 % 101);
  HeadNode given("rope", {{"n_head", heads}, {"max_positions", int64_t{101}}, {"fraction", 0.5}, {"base", 500.0}},
                 {Value({batch, time, heads * dim}, x), Value({batch, time}, positions)});
  const auto yp = given.forward();
  CHECK(distance(yp, wanted(x, positions, heads, dim, dim / 4, {.base = 500}), yp.size()) <= tolerance("rope.y"));
  given.input(1).ints[5] = 101;
  CHECK_THROWS_AS(given.forward(), Error);

  HeadNode decode("rope", {{"n_head", heads}, {"max_positions", int64_t{200}}},
                  {Value({batch, time, heads * dim}, x)});
  const auto later = decode.forward(130);
  CHECK(distance(later, wanted(x, counted(batch, time, 130), heads, dim, dim / 2, {}), y.size()) <=
        tolerance("rope.y"));
  CHECK_THROWS_AS(decode.forward(131), Error);
}

TEST_CASE("scaled frequencies equal the reference, in each part of llama3's ramp") {
  const int64_t batch = 2, time = 90, heads = 2, dim = 32;
  const auto x = numbers(5, batch * time * heads * dim);
  const RopeFrequencies ramp{.base = 500, .scaling = RopeScaling::llama3, .factor = 8, .original = 64};
  int64_t parts[3] = {};
  for (int64_t i = 0; i < dim / 2; ++i) {
    const double turns = 64 * std::pow(500.0, -double(i) / (dim / 2)) / (2 * std::acos(-1.0));
    ++parts[turns < ramp.low_freq ? 0 : turns > ramp.high_freq ? 2 : 1];
  }
  for (const int64_t count : parts) CHECK(count > 0);
  const RopeFrequencies linear{.scaling = RopeScaling::linear, .factor = 3};
  const RopeFrequencies bounds{.scaling = RopeScaling::llama3, .factor = 4, .low_freq = 2, .high_freq = 3};
  const char* names[] = {"none", "linear", "llama3"};
  const auto plain = wanted(x, counted(batch, time), heads, dim, dim / 2, {});
  for (const RopeFrequencies& f : {ramp, linear, bounds}) {
    HeadNode node("rope",
                  {{"n_head", heads},
                   {"base", f.base},
                   {"scaling", std::string(names[static_cast<int>(f.scaling)])},
                   {"factor", f.factor},
                   {"low_freq", f.low_freq},
                   {"high_freq", f.high_freq},
                   {"original", f.original}},
                  {Value({batch, time, heads * dim}, x)});
    const auto y = node.forward();
    const auto expected = wanted(x, counted(batch, time), heads, dim, dim / 2, f);
    CHECK(distance(y, expected, y.size()) <= tolerance("rope.y"));
    CHECK(distance(y, plain, y.size()) > 0.01);  // not the table of another node
  }
  CHECK_THROWS_AS(HeadNode("rope", {{"n_head", heads}, {"scaling", std::string("llama3")}, {"low_freq", 4.0}},
                           {Value({batch, time, heads * dim}, x)}),
                  Error);
}

TEST_CASE("rope refuses what it cannot rotate") {
  const Value x({1, 2, 6}, numbers(1, 12));
  CHECK_THROWS_AS(HeadNode("rope", {{"n_head", int64_t{2}}}, {x}), Error);               // 3 dims: odd
  CHECK_THROWS_AS(HeadNode("rope", {{"n_head", int64_t{4}}}, {x}), Error);               // 6 / 4
  CHECK_THROWS_AS(HeadNode("rope", {}, {x}), Error);                                     // heads unknown
  CHECK_THROWS_AS(HeadNode("rope", {{"n_head", int64_t{1}}, {"pi", 3.0}}, {x}), Error);  // unknown option
  CHECK_THROWS_AS(HeadNode("rope", {{"n_head", int64_t{1}}}, {x, Value({1, 3}, std::vector<int32_t>(3))}), Error);
  HeadNode empty("rope", {{"n_head", int64_t{1}}}, {Value({1, 0, 6}, std::vector<float>{})});
  CHECK(empty.forward().empty());
}
