// levels: ngram_ids against its reference, at the borders of documents, on threads, and its errors.
#include "mudd/ops/ngram_ids/ngram_ids.h"

#include <algorithm>
#include <vector>

#include "compare.h"
#include "mudd/base/check.h"
#include "mudd/base/parallel.h"
#include "mudd/graph/node.h"
#include "mudd/ops/ngram_ids/reference.h"

using namespace mudd;
using namespace mudd::test;

namespace {

struct Case {
  int64_t samples = 3, length = 7, order = 2, rows = 65536, seed = 0, end = -1;
  bool has_segments = false;
};

// A node on ids and segments whose rows are `gap` elements apart, in a separate slab.
struct Runner {
  Case c;
  int64_t gap = 2;
  std::vector<int32_t> ids, segments, y;
  StepInput step;

  explicit Runner(const Case& given) : c(given) {
    const size_t n = static_cast<size_t>(c.samples * (c.length + gap));
    for (size_t i = 0; i < n; ++i) ids.push_back(static_cast<int32_t>(i * i * 7 % 11));
    for (size_t i = 0; i < n; ++i) segments.push_back(static_cast<int32_t>(i / 3));
  }

  std::vector<int32_t> forward() {
    Attributes a;
    a.values = {{"order", c.order}, {"rows", c.rows}, {"seed", c.seed}, {"end", c.end}};
    const auto node = make_node("ngram_ids", a);
    TensorSpec spec{{c.samples, c.length}, DType::i32};
    Inference io;
    io.inputs_ = {&spec, c.has_segments ? &spec : nullptr};
    io.parameter_ = io.wants_ = {false, false};
    Shards shards{{0, c.samples}};
    io.shards_ = &shards;
    node->infer(io);
    CHECK(io.outputs_.at(0).dtype == DType::i32);
    CHECK(io.outputs_.at(0).shape == spec.shape);
    y.assign(ids.size(), -7);
    const auto placed = [&](std::vector<int32_t>& v) {
      return Tensor{v.data(), c.samples, c.length, c.length + gap, DType::i32};
    };
    Run run;
    run.in_ = {placed(ids), c.has_segments ? placed(segments) : Tensor{}};
    run.out_ = {placed(y)};
    run.shards_ = &shards;
    run.step_ = &step;
    node->forward(run);
    return y;
  }
};

}  // namespace

TEST_CASE("every position equals the reference, and nothing else is written") {
  for (int64_t order : {1, 2, 3})
    for (int64_t length : {1, 2, 3, 4, 33})
      for (int64_t rows : {int64_t{1}, int64_t{1000}, (int64_t{1} << 31) - 1})
        for (bool has_segments : {false, true})
          for (int64_t end : {-1, 7}) {
            Runner one({3, length, order, rows, order * 5, end, has_segments});
            const auto y = one.forward();
            const int64_t stride = length + one.gap;
            for (int64_t b = 0; b < 3; ++b)
              for (int64_t t = 0; t < stride; ++t) {
                const auto* segments = has_segments ? one.segments.data() + b * stride : nullptr;
                const int32_t* ids = one.ids.data() + b * stride;
                const int32_t want =
                    t < length ? reference::ngram_id(ids, segments, t, order, rows, order * 5, end) : -7;
                CHECK(y[static_cast<size_t>(b * stride + t)] == want);
              }
          }
}

TEST_CASE("any number of threads writes the same ids, which cover the table") {
  Runner one({16, 64, 3, 40});
  for (size_t i = 0; i < one.ids.size(); ++i) one.ids[i] = static_cast<int32_t>(i);
  set_num_threads(1);
  const auto alone = one.forward();
  set_num_threads(2);
  CHECK(one.forward() == alone);
  set_num_threads(0);
  std::vector<int> seen(40);
  for (int32_t row : alone)
    if (row >= 0) ++seen.at(static_cast<size_t>(row));
  CHECK(*std::min_element(seen.begin(), seen.end()) > 0);
}

TEST_CASE("a negative id and a step of decoding are refused") {
  Runner one({2, 5});
  one.step.cache_length = 3;
  CHECK_THROWS_WITH_AS(one.forward(), doctest::Contains("[ngram_ids] ids: expected whole sequences"), Error);
  one.step.cache_length = 0;
  one.ids[static_cast<size_t>(5 + one.gap + 2)] = -1;
  CHECK_THROWS_WITH_AS(one.forward(), doctest::Contains("expected values of at least 0, got -1 at [1, 2]"), Error);
}
