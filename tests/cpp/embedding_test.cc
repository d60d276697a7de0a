// levels: embedding rows and node against the double reference; the gradient's order bit for bit.
#include "mudd/ops/embedding/embedding.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "compare.h"
#include "mudd/base/parallel.h"
#include "mudd/graph/node.h"
#include "mudd/ops/embedding/reference.h"

using namespace mudd;
using namespace mudd::test;

namespace {

struct Case {
  int64_t samples = 1, positions = 1, vocabulary = 1, d = 1;
  int shards = 1;
  bool learned_positions = false, residual = false;
  int64_t cache_length = 0;

  int64_t rows() const { return samples * positions; }
};

std::vector<int32_t> ids_of(const Case& c) {
  std::vector<int32_t> ids(static_cast<size_t>(c.rows()));
  for (int64_t r = 0; r < c.rows(); ++r)
    ids[r] = c.learned_positions ? static_cast<int32_t>(r % c.positions + c.cache_length)
                                 : static_cast<int32_t>((number(5, r) + 1) / 2 * c.vocabulary);
  return ids;
}

// The node by itself, its ids `gap` numbers apart between samples.
class Runner {
 public:
  Runner(const Case& c, std::vector<int32_t> ids, std::vector<float> table, std::vector<float> residual,
         int64_t gap = 0)
      : case_(c),
        table_(std::move(table)),
        residual_(std::move(residual)),
        shards_(Shards::cut(c.samples, c.shards)) {
    Attributes a;
    if (c.learned_positions) a.values["positions"] = true;
    node_ = make_node("embedding", a);
    specs_ = {{{c.samples, c.positions}, DType::i32},
              {{c.vocabulary, c.d}, DType::f32},
              {{c.samples, c.positions, c.d}, DType::f32}};
    needs_.inputs_ = {c.learned_positions ? nullptr : &specs_[0], &specs_[1], c.residual ? &specs_[2] : nullptr};
    needs_.parameter_ = {false, true, false};
    needs_.wants_ = {false, true, c.residual};
    needs_.shards_ = &shards_;
    node_->infer(needs_);
    const int64_t stride = c.positions + gap;
    ids_.assign(static_cast<size_t>(c.samples * stride), -7);
    for (int64_t b = 0; b < c.samples; ++b)
      std::copy_n(ids.begin() + b * c.positions, c.positions, ids_.begin() + b * stride);
    run_.in_ = {c.learned_positions ? Tensor{} : Tensor{ids_.data(), c.samples, c.positions, stride, DType::i32},
                Tensor{table_.data(), c.vocabulary, c.d, c.d},
                c.residual ? Tensor{residual_.data(), c.rows(), c.d, c.d} : Tensor{}};
    scratch_.assign(static_cast<size_t>(std::max(needs_.scratch_forward_, needs_.scratch_backward_)) + 64,
                    std::byte{0x7f});
    run_.scratch_ = scratch_.data();
    run_.shards_ = &shards_;
    step_.cache_length = c.cache_length;
    run_.step_ = &step_;
  }

  std::vector<float> forward() {
    std::vector<float> y(static_cast<size_t>(case_.rows() * case_.d), 1e30f);
    run_.out_ = {Tensor{y.data(), case_.rows(), case_.d, case_.d}};
    node_->forward(run_);
    return y;
  }

  std::vector<float> backward(const std::vector<float>& dy, const std::vector<const float*>& adds = {}) {
    std::vector<float> out(table_.size(), 1e30f), copy(dy);
    run_.dout_ = {Tensor{copy.data(), case_.rows(), case_.d, case_.d}};
    run_.din_.assign(3, Tensor{});
    run_.sink_.assign(3, GradSink{});
    run_.sink_[1].out = out.data();
    for (const float* a : adds) run_.sink_[1].add[run_.sink_[1].n_add++] = a;
    node_->backward(run_);
    return out;
  }

  // Into rows, which may be one of the adds.
  void backward_rows(const std::vector<float>& dy, RowGradient* out, const std::vector<const RowGradient*>& adds) {
    std::vector<float> copy(dy);
    run_.dout_ = {Tensor{copy.data(), case_.rows(), case_.d, case_.d}};
    run_.din_.assign(3, Tensor{});
    run_.sink_.assign(3, GradSink{});
    run_.sink_[1].out_rows = out;
    for (const RowGradient* a : adds) run_.sink_[1].add_rows[run_.sink_[1].n_add++] = a;
    CHECK(run_.wants(1));
    node_->backward(run_);
  }

  Node& node() { return *node_; }

 private:
  Case case_;
  std::vector<float> table_, residual_;
  Shards shards_;
  std::unique_ptr<Node> node_;
  std::vector<TensorSpec> specs_;
  Inference needs_;
  std::vector<int32_t> ids_;
  std::vector<std::byte> scratch_;
  StepInput step_;
  Run run_;
};

Runner make(const Case& c) {
  return {c, ids_of(c), numbers(1, c.vocabulary * c.d),
          c.residual ? numbers(2, c.rows() * c.d) : std::vector<float>{}};
}

// Room for `capacity` rows, full of what must not be read.
struct Rows : RowGradient {
  Rows(const Case& c, int64_t room) : numbers(static_cast<size_t>(room * c.d), 1e30f), places(c.vocabulary, 77) {
    table_rows = c.vocabulary, width = c.d, capacity = room;
    values = numbers.data(), place = places.data(), count = 99;
  }
  Rows(const Rows&) = delete;
  std::vector<float> whole() const {
    std::vector<float> all(static_cast<size_t>(table_rows * width));
    copy(0, static_cast<int64_t>(all.size()), all.data());
    return all;
  }
  std::vector<float> numbers;
  std::vector<int32_t> places;
};

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace

TEST_CASE("embedding rows equal the reference on every edge of the lanes") {
  for_each_row(embedding_rows(), [](const auto& row) {
    for (int64_t rows : {0, 1, 5})
      for (int64_t d : {1, 7, 8, 9, 16, 17, 33, 257, 300}) {
        const Case c{1, rows, 3, d};
        const auto ids = ids_of(c);
        const auto table = numbers(1, 3 * d), residual = numbers(2, rows * d);
        std::vector<double> want(static_cast<size_t>(rows * d));
        const auto t = widen(table), x = widen(residual);
        reference::embedding<double>(rows, d, ids.data(), t.data(), x.data(), want.data());
        std::vector<float> y(want.size());
        row.kernels->fwd(0, rows, d, ids.data(), table.data(), d, residual.data(), d, y.data(), d);
        CHECK(distance(y, want, y.size()) <= tolerance(1));

        // All rows have id 1 of 3, in two shards cut after the first row.
        std::vector<int32_t> order(rows), begin{0, 0, static_cast<int32_t>(rows), static_cast<int32_t>(rows)};
        for (int64_t r = 0; r < rows; ++r) order[r] = static_cast<int32_t>(r);
        const std::vector<int64_t> cuts{0, std::min<int64_t>(1, rows), rows};
        const auto before = numbers(3, 3 * d);
        const float* add[] = {before.data()};
        std::vector<float> dtable(3 * d, 1e30f);
        const EmbeddingGrad g{
            residual.data(), d, order.data(), begin.data(), cuts.data(), 2, d, dtable.data(), add, 1};
        for (int64_t column = 0; column < d; column += kEmbeddingColumns) row.kernels->bwd(g, 0, 3, column);
        auto dwant = widen(before);
        for (int64_t r = 0; r < rows; ++r)
          for (int64_t i = 0; i < d; ++i) dwant[d + i] += residual[r * d + i];
        CHECK(distance(dtable, dwant, dtable.size()) <= tolerance(8));
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
      CHECK(distance(run.forward(), want, want.size()) <= tolerance(1));
      const auto dy = numbers(3, c.rows() * c.d);
      const auto dyd = widen(dy);
      reference::embedding_backward<double>(c.rows(), c.d, ids.data(), dyd.data(), dwant.data());
      CHECK(distance(run.backward(dy), dwant, dwant.size()) <= tolerance(8));
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
      for (size_t i = 0; i < dy.size(); i += 3) dy[i] = -0.0f;  // where a zero's sign could tell the cuts apart
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
