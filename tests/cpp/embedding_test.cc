// levels: embedding rows and node against the double reference; the gradient's order bit for bit.
#include "mudd/ops/embedding/embedding.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "compare.h"
#include "embedding_runner.h"
#include "mudd/base/parallel.h"
#include "mudd/graph/node.h"
#include "mudd/kernels/table_gradient/table_gradient.h"
#include "mudd/ops/embedding/reference.h"

using namespace mudd;
using namespace mudd::test;
using namespace mudd::test::embedding;

constexpr float kScale = 25.298f;

TEST_CASE("embedding rows equal the reference on every edge of the lanes") {
  for_each_row(embedding_rows(), [](const auto& row) {
    for (int64_t rows : {0, 1, 5})
      for (int64_t d : {1, 7, 8, 9, 16, 17, 33, 257, 300}) {
        const Case c{1, rows, 3, d};
        const auto ids = ids_of(c);
        const auto table = numbers(1, 3 * d), residual = numbers(2, rows * d);
        std::vector<double> want(static_cast<size_t>(rows * d));
        const auto t = widen(table), x = widen(residual);
        reference::embedding<double>(rows, d, ids.data(), t.data(), x.data(), want.data(), kScale);
        std::vector<float> y(want.size());
        row.kernels->fwd(0, rows, d, ids.data(), table.data(), d, kScale, residual.data(), d, y.data(), d);
        CHECK(distance(y, want, y.size()) <= tolerance("embedding.y"));
      }
  });
}

TEST_CASE("rows of the table gradient equal the reference on every edge of the lanes, with signs and without") {
  for_each_row(table_gradient_rows(), [](const auto& row) {
    for (const bool is_signed : {false, true})
      for (int64_t rows : {0, 1, 5})
        for (int64_t d : {1, 7, 8, 9, 16, 17, 33, 257, 300}) {
          // All rows have id 1 of 3, in two shards cut after the first row.
          const auto dy = numbers(2, rows * d);
          std::vector<int32_t> order(rows), found{1}, begin{0, static_cast<int32_t>(rows)};
          for (int64_t r = 0; r < rows; ++r) order[r] = static_cast<int32_t>(r);
          const std::vector<int64_t> cuts{0, std::min<int64_t>(1, rows), rows};
          const std::vector<float> signs{1, -1, -1, 1, -1};
          const auto before = numbers(3, 3 * d);
          const float* add[] = {before.data()};
          std::vector<float> dtable(3 * d, 1e30f);
          const TableGradient g{.dy = dy.data(),
                                .dy_stride = d,
                                .order = order.data(),
                                .signs = is_signed ? signs.data() : nullptr,
                                .found = found.data(),
                                .begin = begin.data(),
                                .n_found = rows > 0 ? 1 : 0,
                                .cuts = cuts.data(),
                                .shards = 2,
                                .width = d,
                                .out = dtable.data(),
                                .add = add,
                                .n_add = 1,
                                .scale = kScale};
          for (int64_t column = 0; column < d; column += kTableColumns) row.kernels->write(g, 0, 3, column);
          auto dwant = widen(before);
          for (int64_t r = 0; r < rows; ++r)
            for (int64_t i = 0; i < d; ++i)
              dwant[d + i] += double(kScale) * (is_signed ? signs[r] : 1) * dy[r * d + i];
          CHECK(distance(dtable, dwant, dtable.size()) <= tolerance("embedding.dtable"));
        }
  });
}

TEST_CASE("the node equals the reference, by ids and by positions") {
  for (bool residual : {false, true})
    for (bool positions : {false, true}) {
      if (positions && !residual) continue;
      const Case c{5, 13, 29, 10, 4, positions, residual, positions ? 16 : 0};
      const auto ids = ids_of(c);
      const auto table = widen(numbers(1, c.vocabulary * c.d)), x = widen(numbers(2, c.rows() * c.d));
      std::vector<double> want(static_cast<size_t>(c.rows() * c.d)), dwant(table.size());
      reference::embedding<double>(c.rows(), c.d, ids.data(), table.data(), residual ? x.data() : nullptr,
                                   want.data());
      Runner run = make(c);
      CHECK(distance(run.forward(), want, want.size()) <= tolerance("embedding.y"));
      const auto dy = numbers(3, c.rows() * c.d);
      const auto dyd = widen(dy);
      reference::embedding_backward<double>(c.rows(), c.d, ids.data(), dyd.data(), dwant.data());
      CHECK(distance(run.backward(dy), dwant, dwant.size()) <= tolerance("embedding.dtable"));
      CHECK(run.node().passes_gradient() == (residual ? 2 : -1));
    }
}

TEST_CASE("ids may lie in a wider slab") {
  const Case c{3, 4, 9, 5};
  const auto ids = ids_of(c);
  Runner run(c, ids, numbers(1, c.vocabulary * c.d), {}, 2);
  CHECK(same_bits(run.forward(), make(c).forward()));
}

TEST_CASE("ids outside the vocabulary fail with their value and place") {
  const Case c{2, 3, 10, 4};
  for (int32_t bad : {-1, 10, 2147483647}) {
    std::vector<int32_t> ids = ids_of(c);
    ids[4] = bad;
    Runner run(c, ids, numbers(1, c.vocabulary * c.d), {});
    std::string message;
    try {
      run.forward();
    } catch (const Error& e) {
      message = e.what();
    }
    CHECK(message.find(std::to_string(bad)) != std::string::npos);
    CHECK(message.find("[1, 1]") != std::string::npos);
  }
  Case late{1, 4, 6, 2, 1, true, true, 3};
  CHECK_THROWS_AS(make(late).forward(), Error);
}

TEST_CASE("the gradient's bits: the shard tree, micro-batches, threads") {
  // Few ids with many rows, many ids with few rows, shards of unequal size.
  for (int64_t vocabulary : {3, 50, 400})
    for (int64_t samples : {8, 11, 16}) {
      const Case c{samples, 9, vocabulary, 21, 8};
      auto dy = numbers(3, c.rows() * c.d);
      for (size_t i = 0; i < dy.size(); i += 3) dy[i] = -0.0f;  // the sign of a zero could reveal the split
      const auto ids = ids_of(c);
      set_num_threads(1);
      const auto whole = make(c).backward(dy);
      for (int threads : {2, 3}) {
        set_num_threads(threads);
        CHECK(same_bits(make(c).backward(dy), whole));
      }
      set_num_threads(0);

      // The tree written out: shard sums in row order, then pairs.
      const Shards shards = Shards::cut(samples, 8);
      std::vector<std::vector<float>> sums(8, std::vector<float>(whole.size(), 0.0f));
      for (int s = 0; s < 8; ++s)
        for (int64_t r = shards.row_begin(s, c.rows()); r < shards.row_begin(s + 1, c.rows()); ++r)
          for (int64_t i = 0; i < c.d; ++i) sums[s][ids[r] * c.d + i] += dy[r * c.d + i];
      for (int step = 1; step < 8; step *= 2)
        for (int s = 0; s < 8; s += 2 * step)
          for (size_t i = 0; i < whole.size(); ++i) sums[s][i] += sums[s + step][i];
      CHECK(same_bits(whole, sums[0]));

      // Shards 0-3 in one run, 4-7 in another that adds the first: and four runs of two by a binary counter.
      for (int runs : {2, 4}) {
        std::vector<std::vector<float>> waiting;
        std::vector<float> total;
        for (int i = 0; i < runs; ++i) {
          const int per_run = 8 / runs;
          const int64_t begin = shards.sample_begin[i * per_run], end = shards.sample_begin[(i + 1) * per_run];
          Case part = c;
          part.samples = end - begin;
          part.shards = per_run;
          Runner run(part, {ids.begin() + begin * c.positions, ids.begin() + end * c.positions},
                     numbers(1, c.vocabulary * c.d), {});
          std::vector<const float*> adds;
          for (int t = 0; i >> t & 1; ++t) adds.push_back(waiting[waiting.size() - 1 - t].data());
          total = run.backward({dy.begin() + begin * 9 * c.d, dy.begin() + end * 9 * c.d}, adds);
          waiting.resize(waiting.size() - adds.size());
          waiting.push_back(total);
        }
        CHECK(same_bits(total, whole));
      }
    }
}

TEST_CASE("a gradient given by its rows has the bits of the whole one, over runs and threads") {
  const Case c{16, 9, 400, 300, 8};
  auto dy = numbers(3, c.rows() * c.d);
  for (size_t i = 0; i < dy.size(); i += 3) dy[i] = -0.0f;
  const auto ids = ids_of(c);
  const auto whole = make(c).backward(dy);
  for (int runs : {1, 2, 4, 8})
    for (int threads : {1, 3}) {
      set_num_threads(threads);
      // As the executor places them: one sum a level of the binary counter, the last one for all runs.
      const int levels = runs < 4 ? 1 : runs / 2 - runs / 8;
      std::vector<std::unique_ptr<Rows>> sums;
      for (int t = 0; t < levels; ++t) sums.push_back(std::make_unique<Rows>(c, c.rows()));
      for (int i = 0; i < runs; ++i) {
        Case part = c;
        part.samples = c.samples / runs;
        part.shards = c.shards / runs;
        const int64_t begin = i * part.rows(), end = begin + part.rows();
        Runner run(part, {ids.begin() + begin, ids.begin() + end}, numbers(1, c.vocabulary * c.d), {});
        CHECK(run.node().gradient_rows(1) == std::min(c.vocabulary, part.rows()));
        std::vector<const RowGradient*> adds;
        int t = 0;
        for (; i >> t & 1; ++t) adds.push_back(sums[t].get());
        run.backward_rows({dy.begin() + begin * c.d, dy.begin() + end * c.d}, sums[std::min(t, levels - 1)].get(),
                          adds);
      }
      CHECK(same_bits(sums.back()->whole(), whole));
      CHECK(sums.back()->count < c.rows());
      // Any piece of it, across rows.
      std::vector<float> piece(777);
      sums.back()->copy(1001, 777, piece.data());
      CHECK(std::equal(piece.begin(), piece.end(), whole.begin() + 1001));
    }
  set_num_threads(0);
  Rows small(c, 3);
  CHECK_THROWS_AS(make(c).backward_rows(dy, &small, {}), Error);
}

TEST_CASE("the gradient of a large table has the bits of a small table with the same rows") {
  // Three digits of the sort; the gradient's scratch and rows do not grow with the table.
  const Case large{2, 40, (int64_t{1} << 23) + 5, 8, 2};
  auto ids = ids_of(large);
  ids[7] = ids[70] = 0, ids[8] = ids[33] = (1 << 23) + 4, ids[9] = 2048, ids[10] = 2047, ids[11] = 1 << 22;
  const auto dy = numbers(3, large.rows() * large.d);
  Runner run(large, ids, std::vector<float>(large.vocabulary * large.d), {});
  Rows found(large, large.rows());
  run.backward_rows(dy, &found, {});
  auto order = ids;
  std::sort(order.begin(), order.end());
  order.erase(std::unique(order.begin(), order.end()), order.end());
  CHECK(found.count == static_cast<int64_t>(order.size()));
  CHECK(std::equal(order.begin(), order.end(), found.ids));
  // The same with the ids replaced by their ranks in a small table.
  const Case small{2, 40, static_cast<int64_t>(order.size()), 8, 2};
  std::vector<int32_t> ranks;
  for (int32_t id : ids)
    ranks.push_back(static_cast<int32_t>(std::lower_bound(order.begin(), order.end(), id) - order.begin()));
  const auto whole = Runner(small, ranks, std::vector<float>(small.vocabulary * small.d), {}).backward(dy);
  for (int64_t k = 0; k < found.count; ++k)
    CHECK(std::memcmp(found.row(order[k]), whole.data() + k * small.d, small.d * sizeof(float)) == 0);
  found.clear();
  CHECK(std::all_of(found.places.begin(), found.places.end(), [](int32_t at) { return at == 0; }));
}
