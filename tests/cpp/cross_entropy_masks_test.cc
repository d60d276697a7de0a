// levels, units: cross_entropy skips rows with ignored targets; its bits equal a run over all rows with zeros.
#include <algorithm>
#include <functional>
#include <span>
#include <string>

#include "compare.h"
#include "cross_entropy_runner.h"
#include "mudd/base/math.h"
#include "mudd/base/parallel.h"
#include "mudd/base/shard_tree.h"

using namespace mudd;
using namespace mudd::test;
using namespace mudd::test::loss;

namespace {

struct Mask {
  const char* name;
  std::function<bool(int64_t row, const Case&)> counts;
};

const Mask kMasks[] = {
    {"none", [](int64_t, const Case&) { return false; }},
    {"one", [](int64_t r, const Case& c) { return r == c.rows() / 2; }},
    {"the last", [](int64_t r, const Case& c) { return r == c.rows() - 1; }},
    {"all", [](int64_t, const Case&) { return true; }},
    {"all but one", [](int64_t r, const Case& c) { return r != c.rows() / 3; }},
    {"two in five", [](int64_t r, const Case&) { return number(5, static_cast<uint64_t>(r)) < -0.2f; }},
    {"ends of samples", [](int64_t r, const Case& c) { return 5 * (r % c.positions) >= 3 * c.positions; }},
    {"every second sample", [](int64_t r, const Case& c) { return r / c.positions % 2 == 1; }},
    {"the last sample", [](int64_t r, const Case& c) { return r / c.positions == c.samples - 1; }},
};

Numbers masked(const Case& c, const Mask& mask) {
  Numbers n = numbers_of(c);
  n.bias = numbers(6, c.vocabulary);
  for (int64_t r = 0; r < c.rows(); ++r)
    n.targets[r] = mask.counts(r, c) ? static_cast<int32_t>(r * 7919 % c.vocabulary) : -1;
  return n;
}

// Return the GEMM of the head with `a`, which has these rows: logits (transposed) or dh.
std::vector<float> times_head(const Case& c, const Numbers& n, ConstCells a, bool transposed) {
  const int64_t k = transposed ? c.d : c.vocabulary, width = transposed ? c.vocabulary : c.d;
  std::vector<std::byte> panels(packed_bytes(k, width, c.compute));
  pack_weight(n.head.data(), c.vocabulary, c.d, transposed, panels.data(), c.compute);
  std::vector<float> out(c.rows() * width);
  GemmBlock g;
  g.a = a;
  g.lda = g.k = k;
  g.b = panels.data();
  g.c = Cells(out.data());
  g.ldc = g.n = width;
  g.m = c.rows();
  g.compute = c.compute;
  if (transposed) g.epilogue.bias = n.bias.data();
  multiply(g);
  return out;
}

std::vector<float> head_gradient(const Case& c, const Numbers& n, ConstCells dlogits, const Shards& shards) {
  std::vector<int64_t> cuts;
  for (int s = 0; s <= shards.count(); ++s) cuts.push_back(shards.row_begin(s, c.rows()));
  GradBlock g;
  g.scratch_bytes = grad_scratch_bytes(c.vocabulary, c.d, shards.count(), 1, c.compute);
  std::vector<float> scratch(static_cast<size_t>(g.scratch_bytes) / sizeof(float)), out(c.vocabulary * c.d);
  g.x = dlogits;
  g.ldx = g.m = c.vocabulary;
  g.dy = n.h.data();
  g.ldy = g.ldo = g.n = c.d;
  g.cuts = cuts.data();
  g.shards = shards.count();
  g.out = out.data();
  g.scratch = scratch.data();
  g.compute = c.compute;
  weight_gradient(g);
  return out;
}

std::vector<float> bias_gradient(const Case& c, const std::vector<float>& dlogits, const Shards& shards) {
  std::vector<float> sums(shards.count() * c.vocabulary);
  const auto add = [&](int64_t to, const float* from) {
    for (int64_t v = 0; v < c.vocabulary; ++v) sums[to * c.vocabulary + v] += from[v];
  };
  for (int s = 0; s < shards.count(); ++s)
    for (int64_t r = shards.row_begin(s, c.rows()); r < shards.row_begin(s + 1, c.rows()); ++r)
      add(s, dlogits.data() + r * c.vocabulary);
  shard_tree::pairs(shards.count(), [&](int left, int right) { add(left, sums.data() + right * c.vocabulary); });
  sums.resize(static_cast<size_t>(c.vocabulary));
  return sums;
}

// All rows computed, ignored ones too, whose dlogits are then zeros.
Result dense(const Case& c, const Numbers& n) {
  const Shards shards = Shards::cut(c.samples, c.shards);
  const CrossEntropyKernels& kernels = choose(cross_entropy_rows());
  std::vector<float> dlogits = times_head(c, n, n.h.data(), true);
  Result want;
  want.loss.assign(shards.count(), 0);
  want.count = want.loss;
  want.guessed.assign(2 * c.samples, 0);
  for (int s = 0; s < shards.count(); ++s)
    for (int64_t r = shards.row_begin(s, c.rows()); r < shards.row_begin(s + 1, c.rows()); ++r) {
      float* row = dlogits.data() + r * c.vocabulary;
      if (n.targets[r] < 0) {
        std::fill_n(row, c.vocabulary, 0.0f);
        continue;
      }
      RowSoftmax stats;
      kernels.bwd(1, c.vocabulary, row, c.vocabulary, n.targets.data() + r, 1.0f, &stats);
      want.loss[s] += math::log(stats.sum) + (static_cast<double>(stats.max) - static_cast<double>(stats.target));
      want.count[s] += 1;
      want.guessed[2 * (r / c.positions)] += stats.guessed ? 1.0f : 0.0f;
    }
  for (int64_t b = 0; b < c.samples; ++b) {
    const std::span sample(n.targets.data() + b * c.positions, static_cast<size_t>(c.positions));
    const auto counted = std::count_if(sample.begin(), sample.end(), [](int32_t t) { return t >= 0; });
    want.guessed[2 * b + 1] = want.guessed[2 * b] / static_cast<float>(std::max<int64_t>(1, counted));
  }
  want.dbias = bias_gradient(c, dlogits, shards);
  std::vector<bf16> narrowed;
  for (float x : dlogits) narrowed.push_back(to_bf16(x));
  const ConstCells operand = c.compute == DType::bf16 ? ConstCells(narrowed.data()) : ConstCells(dlogits.data());
  want.dh = times_head(c, n, operand, false);
  want.dhead = head_gradient(c, n, operand, shards);
  return want;
}

// Return the gradients of trained inputs: all, all but the head (a base under an adapter), or the head alone.
Result learned(Result all, const Case& c) {
  if (!c.hidden_learns) std::fill(all.dh.begin(), all.dh.end(), 0.0f);
  if (!c.head_learns) std::fill(all.dhead.begin(), all.dhead.end(), 0.0f);
  return all;
}

constexpr struct {
  bool hidden, head;
} kLearning[] = {{true, true}, {true, false}, {false, true}};

const Case kCases[] = {{8, 12, 24, 150, 8}, {5, 40, 16, 65, 4}, {2, 150, 8, 37, 2}, {1, 200, 12, 90}};

}  // namespace

TEST_CASE("masks: loss, counts and gradients have the bits of all rows with zeros for those ignored") {
  for (Case c : kCases)
    for (const Mask& mask : kMasks) {
      const Numbers n = masked(c, mask);
      const Result all = dense(c, n);
      CAPTURE(std::string(mask.name));
      for (const auto& learns : kLearning)
        for (const int64_t chunk_bytes : {1ll, 30000ll, 16ll << 20}) {
          c.hidden_learns = learns.hidden, c.head_learns = learns.head;
          c.training = chunk_bytes > 1, c.parameter = chunk_bytes == 1, c.chunk_bytes = chunk_bytes;
          set_num_threads(chunk_bytes == 30000 ? 3 : 1);
          CHECK(same_bits(run(c, n), learned(all, c)));
        }
    }
  set_num_threads(0);
}

TEST_CASE("masks: gradients are added to the rows that count, and other rows keep theirs") {
  for (Case c : kCases)
    for (const Mask& mask : kMasks) {
      const Numbers n = masked(c, mask);
      const Result all = dense(c, n);
      const auto before = numbers(7, c.rows() * c.d);
      CAPTURE(std::string(mask.name));
      for (const int64_t chunk_bytes : {1ll, 16ll << 20}) {
        c.parameter = false, c.chunk_bytes = chunk_bytes;
        const Result got = run(c, n, {{}, {}, before, false});
        for (size_t i = 0; i < before.size(); ++i) {
          CAPTURE(i);
          REQUIRE(got.dh[i] == before[i] + all.dh[i]);
        }
      }
    }
}

TEST_CASE("masks, bf16: gradients that lie in bf16 are rounded once, added or not") {
  for (Case c : kCases)
    for (const Mask& mask : kMasks) {
      c.compute = DType::bf16;
      const Numbers n = masked(c, mask);
      const std::vector<float> all = dense(c, n).dh;
      const auto near = [](float x) { return from_bf16(to_bf16(x)); };
      CAPTURE(std::string(mask.name));
      for (const bool adds : {false, true}) {
        std::vector<float> before = adds ? numbers(7, std::ssize(all)) : std::vector<float>();
        const Result got = run(c, n, {{}, {}, before, false, true});
        for (size_t i = 0; i < all.size(); ++i) {
          CAPTURE(i);
          REQUIRE(got.dh[i] == near(adds ? near(before[i]) + all[i] : all[i]));
        }
      }
    }
}

TEST_CASE("masks: what an ignored row holds reaches nothing, not even as NaN") {
  const Case c = kCases[0];
  Numbers n = masked(c, kMasks[5]);
  const Result want = run(c, n);
  for (int64_t r = 0; r < c.rows(); ++r)
    if (n.targets[r] < 0) std::fill_n(n.h.begin() + r * c.d, c.d, NAN);
  CHECK(same_bits(run(c, n), want));
}

TEST_CASE("masks, bf16: one set of bits in every chunk and thread count; loss and dh are those of all rows") {
  for (Case c : kCases)
    for (const Mask& mask : kMasks) {
      c.compute = DType::bf16;
      const Numbers n = masked(c, mask);
      const Result all = dense(c, n), want = run(c, n);
      CAPTURE(std::string(mask.name));
      CHECK(same_bits(want.loss, all.loss));
      CHECK(same_bits(want.dh, all.dh));
      CHECK(same_bits(want.dbias, all.dbias));
      // With depth_unit > 1 the GEMM adds rows in pairs. Ignored rows change the pairs, so dhead is equal up to
      // rounding.
      if (gemm_kernels(c.compute).depth_unit == 1) CHECK(same_bits(want.dhead, all.dhead));
      else CHECK(distance(want.dhead, widen(all.dhead), all.dhead.size()) <= tolerance("cross_entropy.node"));
      for (const int64_t chunk_bytes : {1ll, 30000ll}) {
        c.chunk_bytes = chunk_bytes, c.training = !c.training, c.parameter = !c.parameter;
        set_num_threads(c.training ? 3 : 1);
        CHECK(same_bits(run(c, n), want));
      }
    }
  set_num_threads(0);
}
