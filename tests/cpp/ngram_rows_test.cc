// levels: ngram_rows rows and node against the double reference; gradients, decoding and errors bit for bit.
#include "mudd/ops/ngram_rows/ngram_rows.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "compare.h"
#include "complex_step.h"
#include "embedding_runner.h"
#include "mudd/base/parallel.h"
#include "ngram_rows_runner.h"

using namespace mudd;
using namespace mudd::test;
using namespace mudd::test::ngrams;

namespace {

const std::vector<std::string> kOrders{"1", "2", "3", "2,3", "1,2,3", "3,1"};

// Return the elements of samples or positions [begin, end), which have `width` elements each.
template <class T>
std::vector<T> part(const std::vector<T>& v, int64_t begin, int64_t end, int64_t width) {
  return {v.begin() + begin * width, v.begin() + end * width};
}

}  // namespace

TEST_CASE("ngram rows equal the reference on every edge of the lanes") {
  for_each_row(ngram_rows_rows(), [](const auto& row) {
    for (int64_t orders : {1, 2, 3})
      for (int64_t rows : {0, 1, 5, 40})
        for (int64_t d : {1, 7, 8, 9, 16, 17, 33, 300}) {
          const int64_t stride = d + 3, y_stride = d + 2;
          const auto table = numbers(1, 7 * stride);
          std::vector<int32_t> ids;
          std::vector<float> signs;
          for (int64_t i = 0; i < rows * orders; ++i) ids.push_back(static_cast<int32_t>(i * i % 7));
          for (int64_t i = 0; i < rows * orders; ++i) signs.push_back(i % 3 == 0 ? -1.0f : 1.0f);
          std::vector<float> y(static_cast<size_t>(rows * y_stride), 1e30f);
          std::vector<double> want(y.begin(), y.end());
          for (int64_t r = 1; r < rows; ++r)  // row 0 is not written
            for (int64_t c = 0; c < d; ++c) {
              double& sum = want[r * y_stride + c] = 0;
              for (int64_t i = r * orders; i < (r + 1) * orders; ++i) sum += signs[i] * table[ids[i] * stride + c];
            }
          if (rows > 0)
            row.kernels->fwd(1, rows, d, orders, ids.data(), signs.data(), table.data(), stride, y.data(),
                             y_stride);
          for (size_t i = 0; i < y.size(); ++i)
            if (want[i] == 1e30f) {
              CHECK(y[i] == 1e30f);
              y[i] = 0, want[i] = 0;
            }
          CHECK(distance(y, want, y.size()) <= tolerance("ngram_rows.y"));
        }
  });
}

TEST_CASE("the node equals the reference, at the borders of documents too") {
  for (const std::string& orders : kOrders)
    for (int64_t length : {1, 2, 3, 70})
      for (int64_t rows : {1, 1000})
        for (const bool has_segments : {false, true})
          for (const int64_t end : {-1, 7}) {
            Case c{3, length, rows, 5, orders, rows + length, end, has_segments};
            c.gap = 2;
            Runner run(c);
            const auto want = reference_forward(c, ids_of(c), widen(run.table()));
            CHECK(distance(run.forward(), want, want.size()) <= tolerance("ngram_rows.y"));
          }
}

TEST_CASE("the gradient of the table equals the reference and the complex step") {
  for (const std::string& orders : kOrders)
    for (int64_t rows : {1, 60, 1000})
      for (const bool has_segments : {false, true})
        for (const int64_t end : {-1, 7}) {
          const Case c{3, 23, rows, 3, orders, 4, end, has_segments, 2};
          const auto dy = numbers(3, c.positions() * c.d);
          const auto dyd = widen(dy);
          const auto ids = ids_of(c), segments = segments_of(c);
          std::vector<double> want(static_cast<size_t>(rows * c.d));
          for (int64_t b = 0; b < c.samples; ++b)
            reference::ngram_rows_backward<double>(c.hash(), c.list(), ids.data() + b * c.length,
                                                   has_segments ? segments.data() + b * c.length : nullptr,
                                                   c.length, c.d, dyd.data() + b * c.length * c.d, want.data());
          Runner run(c);
          const auto got = run.backward(dy);
          CHECK(distance(got, want, want.size()) <= tolerance("ngram_rows.dtable"));
          if (rows == 60) {
            const auto step = complex_step({run.table()}, 0, dy,
                                           [&](const auto& in) { return reference_forward(c, ids, in[0]); });
            CHECK(distance(got, step, step.size()) <= tolerance("ngram_rows.dtable"));
          }
          const auto adds = numbers(4, rows * c.d);
          for (size_t i = 0; i < want.size(); ++i) want[i] += adds[i];
          CHECK(distance(run.backward(dy, {adds.data()}), want, want.size()) <= tolerance("ngram_rows.dtable"));
          CHECK(same_bits(run.backward({}, {adds.data()}), adds));  // no reader of y: dy is zero
          CHECK(same_bits(run.backward({}), std::vector<float>(adds.size())));
        }
}

TEST_CASE("any number of threads computes the same bits; all ids may be equal") {
  for (const bool equal : {false, true}) {
    const Case c{3, 150, 70, 300, "2,3", 1, 7, false, 2};
    const auto ids = equal ? std::vector<int32_t>(static_cast<size_t>(c.positions()), 6) : ids_of(c);
    const auto dy = numbers(3, c.positions() * c.d);
    set_num_threads(1);
    const auto y = Runner(c, ids).forward(), dtable = Runner(c, ids).backward(dy);
    for (int threads : {2, 3}) {
      set_num_threads(threads);
      CHECK(same_bits(Runner(c, ids).forward(), y));
      CHECK(same_bits(Runner(c, ids).backward(dy), dtable));
    }
    set_num_threads(0);
    const auto want = reference_forward(c, ids, widen(Runner(c).table()));
    CHECK(distance(y, want, want.size()) <= tolerance("ngram_rows.y"));
  }
}

TEST_CASE("the gradient's bits: the shard tree and micro-batches, in whole tables and in row lists") {
  for (int64_t rows : {1, 50, 700})
    for (int64_t samples : {8, 11, 16}) {
      const Case c{samples, 9, rows, 21, "3,1,2", 3, 7, false, 8};
      auto dy = numbers(3, c.positions() * c.d);
      for (size_t i = 0; i < dy.size(); i += 3) dy[i] = -0.0f;  // the sign of a zero could reveal the split
      const auto ids = ids_of(c);
      const auto whole = Runner(c).backward(dy);

      // The tree written out: shard sums in the order of positions, then of orders; then pairs.
      const Shards shards = Shards::cut(samples, 8);
      std::vector<std::vector<float>> sums(8, std::vector<float>(whole.size(), 0.0f));
      for (int s = 0; s < 8; ++s)
        for (int64_t b = shards.sample_begin[s]; b < shards.sample_begin[s + 1]; ++b)
          reference::ngram_rows_backward<float>(c.hash(), c.list(), ids.data() + b * c.length, nullptr, c.length,
                                                c.d, dy.data() + b * c.length * c.d, sums[s].data());
      for (int step = 1; step < 8; step *= 2)
        for (int s = 0; s < 8; s += 2 * step)
          for (size_t i = 0; i < whole.size(); ++i) sums[s][i] += sums[s + step][i];
      CHECK(same_bits(whole, sums[0]));

      // Runs of whole shards, added by a binary counter.
      for (int runs : {1, 2, 4, 8}) {
        std::vector<std::vector<float>> waiting;
        std::vector<std::unique_ptr<embedding::Rows>> lists;
        for (int i = 0; i < runs; ++i) {
          const int64_t begin = shards.sample_begin[i * 8 / runs], end = shards.sample_begin[(i + 1) * 8 / runs];
          Case one = c;
          one.samples = end - begin, one.shards = 8 / runs;
          Runner run(one, part(ids, begin, end, c.length));
          CHECK(run.node().gradient_rows(1) == std::min(rows, one.look_ups()));
          std::vector<const float*> adds;
          std::vector<const RowGradient*> row_adds;
          size_t left = waiting.size();
          for (int t = 0; i >> t & 1; ++t) {
            adds.push_back(waiting[--left].data());
            row_adds.push_back(lists[left].get());
          }
          const auto piece = part(dy, begin, end, c.length * c.d);
          auto total = run.backward(piece, adds);
          auto list = std::make_unique<embedding::Rows>(embedding::Case{1, 1, rows, c.d}, c.look_ups());
          run.backward_rows(piece, list.get(), row_adds);
          waiting.resize(left), lists.resize(left);
          waiting.push_back(std::move(total)), lists.push_back(std::move(list));
        }
        CHECK(same_bits(waiting[0], whole));
        CHECK(same_bits(lists[0]->whole(), whole));
        CHECK(lists[0]->count <= std::min(rows, c.look_ups()));
      }
    }
}

TEST_CASE("a row list may be its own add, and stays if there is no dy") {
  const Case c{4, 9, 700, 21, "2,3", 0, -1, false, 2};
  const auto dy = numbers(3, c.positions() * c.d);
  embedding::Rows rows(embedding::Case{1, 1, c.rows, c.d}, 2 * c.look_ups());
  const auto once = Runner(c).backward(dy), twice = Runner(c).backward(dy, {once.data()});
  Runner(c).backward_rows(dy, &rows, {});
  CHECK(same_bits(rows.whole(), once));
  Runner(c).backward_rows({}, &rows, {&rows});
  CHECK(same_bits(rows.whole(), once));
  Runner(c).backward_rows(dy, &rows, {&rows});
  CHECK(same_bits(rows.whole(), twice));
  Runner(c).backward_rows({}, &rows, {});
  CHECK(rows.count == 0);
  embedding::Rows small(embedding::Case{1, 1, c.rows, c.d}, 3);
  CHECK_THROWS_WITH_AS(Runner(c).backward_rows(dy, &small, {}),
                       doctest::Contains("[table_gradient] rows: expected at most 3"), Error);
}

TEST_CASE("16-bit stored tables are read as their fp32 copy would be") {
  for (const DType stored : {DType::bf16, DType::f16})
    for (const std::string& orders : kOrders) {
      Case c{3, 30, 200, 19, orders, 2, 7};
      c.stored = stored, c.gap = 1;
      Runner run(c);
      const auto y = run.forward();
      CHECK(!same_bits(y, Runner(Case{3, 30, 200, 19, orders, 2, 7}).forward()));  // rounding is visible
      const auto want = reference_forward(c, ids_of(c), run.table());
      CHECK(same_bits(y, want));
    }
}
