// levels: cross_entropy rows and node against the double reference; one set of bits for every way to run it.
#include "mudd/ops/cross_entropy/cross_entropy.h"

#include <algorithm>
#include <complex>
#include <cstring>
#include <string>

#include "compare.h"
#include "mudd/base/parallel.h"
#include "mudd/graph/node.h"
#include "mudd/ops/cross_entropy/loss_cut.h"
#include "mudd/ops/cross_entropy/reference.h"
#include "mudd/ops/gemm/gemm.h"

using namespace mudd;
using namespace mudd::test;
using C = std::complex<double>;

namespace {

struct Case {
  int64_t samples = 1, positions = 1, d = 1, vocabulary = 1;
  int shards = 1;
  int64_t chunk_bytes = 16 << 20;
  bool training = true, parameter = true;
  DType compute = DType::f32;

  int64_t rows() const { return samples * positions; }
};

struct Numbers {
  std::vector<float> h, head;
  std::vector<int32_t> targets;
};

// Every fifth target or so is ignored.
Numbers numbers_of(const Case& c, float scale = 1.0f) {
  Numbers n{numbers(1, c.rows() * c.d), numbers(2, c.vocabulary * c.d), std::vector<int32_t>(c.rows())};
  for (float& x : n.h) x *= scale;
  for (int64_t r = 0; r < c.rows(); ++r) {
    const double u = (number(3, r) + 1) / 2;
    n.targets[r] = u < 0.2 ? -100 : static_cast<int32_t>((u - 0.2) / 0.8 * c.vocabulary);
  }
  return n;
}

struct Result {
  std::vector<double> loss, count;
  std::vector<float> dh, dhead;
};

struct Options {
  std::vector<double> dloss;       // dout(0), empty: absent
  std::vector<const float*> adds;  // of the head's sink
  std::vector<float> dh_before;    // accumulate onto these
  bool in_place = false;           // the head's gradient goes where adds[last] is
};

// The node as an executor runs it: forward unless it computes in backward, then backward.
Result run(const Case& c, Numbers n, const Options& o = {}) {
  const Shards shards = Shards::cut(c.samples, c.shards);
  Attributes a;
  a.values["chunk_bytes"] = c.chunk_bytes;
  const auto node = make_node("cross_entropy", a);
  const std::vector<TensorSpec> specs{{{c.samples, c.positions, c.d}, DType::f32},
                                      {{c.vocabulary, c.d}, DType::f32},
                                      {{c.samples, c.positions}, DType::i32}};
  Inference needs;
  for (const TensorSpec& s : specs) needs.inputs_.push_back(&s);
  needs.parameter_ = {false, c.parameter, false};
  needs.wants_ = {true, true, false};
  needs.training_ = c.training;
  needs.shards_ = &shards;
  needs.compute_ = c.compute;
  node->infer(needs);

  Result result;
  result.loss.assign(shards.count(), -1);
  result.count.assign(shards.count(), -1);
  result.dh = o.dh_before.empty() ? std::vector<float>(c.rows() * c.d, 1e30f) : o.dh_before;
  result.dhead.assign(c.vocabulary * c.d, 1e30f);
  std::vector<std::byte> plain(c.parameter ? packed_bytes(c.vocabulary, c.d, c.compute) : 0),
      transposed(c.parameter ? packed_bytes(c.d, c.vocabulary, c.compute) : 0);
  if (c.parameter) {
    pack_weight(n.head.data(), c.vocabulary, c.d, false, plain.data(), c.compute);
    pack_weight(n.head.data(), c.vocabulary, c.d, true, transposed.data(), c.compute);
  }
  const auto all = [&] {
    return std::vector<std::byte>(needs.scratch_backward_ + needs.scratch_forward_ + 64, std::byte{0x7f});
  };
  std::vector<std::byte> scratch = all();
  StepInput step;
  std::vector<double> dloss = o.dloss;
  Run r;
  r.in_ = {Tensor{n.h.data(), c.rows(), c.d, c.d}, Tensor{n.head.data(), c.vocabulary, c.d, c.d},
           Tensor{n.targets.data(), c.samples, c.positions, c.positions, DType::i32}};
  const int64_t s = shards.count();
  r.out_ = {Tensor{result.loss.data(), 1, s, s, DType::f64}, Tensor{result.count.data(), 1, s, s, DType::f64}};
  r.scratch_ = scratch.data();
  r.packed_plain_ = {nullptr, c.parameter ? plain.data() : nullptr, nullptr};
  r.packed_transposed_ = {nullptr, c.parameter ? transposed.data() : nullptr, nullptr};
  r.shards_ = &shards;
  r.step_ = &step;
  CHECK(node->computes_in_backward() == c.training);
  if (!node->computes_in_backward()) node->forward(r);
  std::fill(scratch.begin(), scratch.end(), std::byte{0x7f});
  r.dout_ = {dloss.empty() ? Tensor{} : Tensor{dloss.data(), 1, s, s, DType::f64}, Tensor{}};
  r.din_ = {Tensor{result.dh.data(), c.rows(), c.d, c.d}, Tensor{}, Tensor{}};
  r.accumulate_ = {!o.dh_before.empty(), 0, 0};
  r.sink_.assign(3, GradSink{});
  r.sink_[1].out = result.dhead.data();
  for (const float* add : o.adds) r.sink_[1].add[r.sink_[1].n_add++] = add;
  if (o.in_place) {
    std::copy_n(o.adds.back(), result.dhead.size(), result.dhead.data());
    r.sink_[1].add[r.sink_[1].n_add - 1] = result.dhead.data();
  }
  node->backward(r);
  return result;
}

// Loss and gradients in double: softmax - onehot written out.
struct Wanted {
  double loss = 0, count = 0;
  std::vector<double> dh, dhead;
};

Wanted wanted(const Case& c, const Numbers& n) {
  const auto h = widen(n.h), head = widen(n.head);
  Wanted w{reference::cross_entropy<double>(c.rows(), c.d, c.vocabulary, h.data(), head.data(), n.targets.data()),
           0, std::vector<double>(h.size()), std::vector<double>(head.size())};
  for (int64_t r = 0; r < c.rows(); ++r) {
    if (n.targets[r] < 0) continue;
    w.count += 1;
    std::vector<double> p(c.vocabulary);
    double largest = -1e300, sum = 0;
    for (int64_t v = 0; v < c.vocabulary; ++v) {
      for (int64_t i = 0; i < c.d; ++i) p[v] += h[r * c.d + i] * head[v * c.d + i];
      largest = std::max(largest, p[v]);
    }
    for (double& x : p) sum += x = std::exp(x - largest);
    for (int64_t v = 0; v < c.vocabulary; ++v) {
      const double g = p[v] / sum - (v == n.targets[r] ? 1 : 0);
      for (int64_t i = 0; i < c.d; ++i) {
        w.dh[r * c.d + i] += g * head[v * c.d + i];
        w.dhead[v * c.d + i] += g * h[r * c.d + i];
      }
    }
  }
  return w;
}

double total(const std::vector<double>& v) {
  double sum = 0;
  for (double x : v) sum += x;
  return sum;
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

bool same_bits(const Result& a, const Result& b) {
  return same_bits(a.loss, b.loss) && same_bits(a.count, b.count) && same_bits(a.dh, b.dh) &&
         same_bits(a.dhead, b.dhead);
}

}  // namespace

TEST_CASE("cross_entropy rows equal the reference on every edge of the lanes and blocks") {
  for_each_row(cross_entropy_rows(), [](const auto& row) {
    for (int64_t vocabulary : {1, 7, 8, 9, 16, 17, 31, 32, 33, 63, 64, 65, 129, 2047, 2048, 2049, 4500}) {
      const int64_t rows = 3, stride = vocabulary + 5;
      auto logits = numbers(4, rows * stride);
      for (float& x : logits) x *= 8;
      const std::vector<int32_t> targets{0, -1, static_cast<int32_t>(vocabulary - 1)};
      const auto before = logits;
      std::vector<RowSoftmax> stats(rows), again(rows);
      row.kernels->fwd(rows, vocabulary, logits.data(), stride, targets.data(), stats.data());
      CHECK(same_bits(logits, before));
      row.kernels->bwd(rows, vocabulary, logits.data(), stride, targets.data(), 0.5f, again.data());
      for (int64_t r : {0, 2}) {
        CHECK(stats[r].sum == again[r].sum);
        CHECK(stats[r].max == again[r].max);
        CHECK(stats[r].target == again[r].target);
        double largest = -1e300, sum = 0;
        for (int64_t v = 0; v < vocabulary; ++v) largest = std::max<double>(largest, before[r * stride + v]);
        for (int64_t v = 0; v < vocabulary; ++v) sum += std::exp(before[r * stride + v] - largest);
        CHECK(stats[r].max == largest);
        CHECK(std::fabs(stats[r].sum - sum) <= tolerance(8) * sum);
        std::vector<double> want(vocabulary);
        for (int64_t v = 0; v < vocabulary; ++v)
          want[v] = 0.5 * (std::exp(before[r * stride + v] - largest) / sum - (v == targets[r]));
        if (vocabulary == 1) CHECK(logits[r * stride] == 0.0f);
        else CHECK(distance(logits.data() + r * stride, want, want.size()) <= tolerance(16));
      }
      for (int64_t v = 0; v < vocabulary; ++v) CHECK(logits[stride + v] == 0.0f);
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t v = vocabulary; v < stride; ++v) CHECK(logits[r * stride + v] == before[r * stride + v]);
    }
  });
}

TEST_CASE("gradients of the reference by the complex step equal softmax minus one-hot") {
  const Case c{1, 4, 3, 6};
  const Numbers n = numbers_of(c);
  const Wanted want = wanted(c, n);
  std::vector<C> h(n.h.begin(), n.h.end()), head(n.head.begin(), n.head.end());
  const auto slope = [&](C& x) {
    x += C(0, 1e-30);
    const C loss =
        reference::cross_entropy<C>(c.rows(), c.d, c.vocabulary, h.data(), head.data(), n.targets.data());
    x -= C(0, 1e-30);
    return loss.imag() / 1e-30;
  };
  for (size_t i = 0; i < h.size(); ++i) CHECK(slope(h[i]) == doctest::Approx(want.dh[i]).epsilon(1e-12));
  for (size_t i = 0; i < head.size(); ++i) CHECK(slope(head[i]) == doctest::Approx(want.dhead[i]).epsilon(1e-12));
}

TEST_CASE("loss and gradients equal the reference") {
  for (const Case& c : {Case{1, 1, 5, 7}, Case{2, 9, 16, 33, 2}, Case{3, 70, 8, 37, 2, 1},
                        Case{4, 33, 48, 1000, 4, 4096}, Case{8, 5, 20, 130, 8, 40000}})
    for (float scale : {1.0f, 20.0f}) {
      const Numbers n = numbers_of(c, scale);
      const Wanted want = wanted(c, n);
      const Result got = run(c, n);
      CHECK(total(got.count) == want.count);
      CHECK(std::fabs(total(got.loss) - want.loss) <= tolerance(64) * scale * std::max(1.0, want.loss));
      CHECK(distance(got.dh, want.dh, got.dh.size()) <= tolerance(64) * scale);
      CHECK(distance(got.dhead, want.dhead, got.dhead.size()) <= tolerance(64) * scale);
    }
}

TEST_CASE("one set of bits: modes, packing, chunks, threads, gradients added") {
  for (Case c : {Case{8, 12, 24, 150, 8}, Case{5, 40, 16, 65, 4}, Case{2, 150, 8, 37, 2}, Case{1, 200, 12, 90}}) {
    const Numbers n = numbers_of(c);
    const Result want = run(c, n);
    for (int64_t chunk_bytes : {1, 64 * 37 * 4, 30000, 60000})
      for (bool training : {false, true})
        for (bool parameter : {false, true})
          for (int threads : {1, 2, 3}) {
            c.chunk_bytes = chunk_bytes;
            c.training = training;
            c.parameter = parameter;
            set_num_threads(threads);
            CHECK(same_bits(run(c, n), want));
          }
    set_num_threads(0);
    // Adds, in another place and in place; dh on top of what was there.
    const auto a0 = numbers(8, want.dhead.size()), a1 = numbers(9, want.dhead.size());
    const auto before = numbers(7, want.dh.size());
    for (bool in_place : {false, true}) {
      c.parameter = in_place;  // or packed stripe by stripe
      c.chunk_bytes = 1;
      const Result got = run(c, n, {{}, {a0.data(), a1.data()}, before, in_place});
      bool head = true, hidden = true;
      for (size_t i = 0; i < a0.size(); ++i) head = head && got.dhead[i] == a1[i] + (a0[i] + want.dhead[i]);
      for (size_t i = 0; i < before.size(); ++i) hidden = hidden && got.dh[i] == before[i] + want.dh[i];
      CHECK(head);
      CHECK(hidden);
    }
  }
}

TEST_CASE("micro-batches: one run of eight shards equals two of four and eight of one") {
  for (int64_t chunk_bytes : {1ll, 8000ll, 1ll << 24}) {
    const Case c{16, 40, 16, 70, 8, chunk_bytes};
    const Numbers n = numbers_of(c);
    const Result whole = run(c, n);
    for (int runs : {2, 8}) {
      Case part = c;
      part.samples = c.samples / runs;
      part.shards = 8 / runs;
      Result joined;
      std::vector<std::vector<float>> waiting;
      for (int i = 0; i < runs; ++i) {
        const int64_t rows = part.rows(), at = i * rows;
        const Numbers own{{n.h.begin() + at * c.d, n.h.begin() + (at + rows) * c.d},
                          n.head,
                          {n.targets.begin() + at, n.targets.begin() + at + rows}};
        std::vector<const float*> adds;
        for (int t = 0; i >> t & 1; ++t) adds.push_back(waiting[waiting.size() - 1 - t].data());
        const Result got = run(part, own, {{}, adds, {}, false});
        waiting.resize(waiting.size() - adds.size());
        waiting.push_back(got.dhead);
        joined.loss.insert(joined.loss.end(), got.loss.begin(), got.loss.end());
        joined.count.insert(joined.count.end(), got.count.begin(), got.count.end());
        joined.dh.insert(joined.dh.end(), got.dh.begin(), got.dh.end());
      }
      joined.dhead = waiting[0];
      CHECK(same_bits(joined, whole));
    }
  }
}

TEST_CASE("dout scales the gradients of its shard") {
  const Case c{2, 6, 8, 20, 2};
  const Numbers n = numbers_of(c);
  const Result one = run(c, n), scaled = run(c, n, {{4.0, 0.0}, {}, {}, false});
  CHECK(same_bits(one.loss, scaled.loss));
  for (int64_t i = 0; i < c.rows() * c.d; ++i)
    CHECK(scaled.dh[i] == doctest::Approx(i < c.rows() * c.d / 2 ? 4 * one.dh[i] : 0.0).epsilon(1e-6));
}

TEST_CASE("all targets ignored: loss, counts and gradients are zero") {
  const Case c{2, 9, 4, 11, 2};
  Numbers n = numbers_of(c);
  std::fill(n.targets.begin(), n.targets.end(), -1);
  const Result got = run(c, n);
  CHECK(total(got.loss) == 0);
  CHECK(total(got.count) == 0);
  for (float x : got.dh) CHECK(x == 0);
  for (float x : got.dhead) CHECK(x == 0);
}

TEST_CASE("huge logits neither overflow nor lose the loss; a NaN shows") {
  Case c{1, 3, 1, 4};
  Numbers n{{1e3f, 1e30f, -1e30f}, {1.0f, 2.0f, -1.0f, 2.0f}, {1, 1, 2}};
  for (bool training : {false, true}) {
    c.training = training;
    const Result got = run(c, n);
    CHECK(got.loss[0] == doctest::Approx(2 * std::log(2.0)));
    for (float x : got.dh) CHECK(std::isfinite(x));
    Numbers bad = n;
    bad.h[0] = NAN;
    const Result broken = run(c, bad);
    CHECK(std::isnan(broken.loss[0]));
    CHECK(std::isnan(broken.dh[0]));
    CHECK(std::isfinite(broken.dh[1]));
    bad.h[0] = INFINITY;
    CHECK(!std::isfinite(run(c, bad).loss[0]));
  }
}

TEST_CASE("bf16: few rows of logits at a time, dlogits in bf16, one set of bits near those of fp32") {
  for (Case c : {Case{8, 12, 24, 150, 8}, Case{4, 70, 40, 65, 4}, Case{2, 150, 8, 37, 2}, Case{1, 200, 12, 90}}) {
    const Numbers n = numbers_of(c);
    const Result near = run(c, n);
    c.compute = DType::bf16;
    const Result want = run(c, n);
    CHECK(std::fabs(total(want.loss) - total(near.loss)) <= 0.01 * total(near.loss));
    CHECK(distance(want.dh, widen(near.dh), near.dh.size()) <= 0.02);
    CHECK(distance(want.dhead, widen(near.dhead), near.dhead.size()) <= 0.02);
    for (int64_t chunk_bytes : {1, 64 * 37 * 4, 30000})
      for (bool training : {false, true})
        for (bool parameter : {false, true})
          for (int threads : {1, 3}) {
            c.chunk_bytes = chunk_bytes;
            c.training = training;
            c.parameter = parameter;
            set_num_threads(threads);
            CHECK(same_bits(run(c, n), want));
          }
    set_num_threads(0);
  }
}

TEST_CASE("a row does not depend on its company") {
  const Case c{1, 130, 24, 333};
  const Numbers n = numbers_of(c);
  const Result all = run(c, n);
  double sum = 0;
  for (int64_t r = 0; r < c.rows(); ++r) {
    const Case one{1, 1, c.d, c.vocabulary};
    const Result got = run(one, {{n.h.begin() + r * c.d, n.h.begin() + (r + 1) * c.d}, n.head, {n.targets[r]}});
    sum += got.loss[0];
    CHECK(std::equal(got.dh.begin(), got.dh.end(), all.dh.begin() + r * c.d));
  }
  CHECK(sum == all.loss[0]);
}

TEST_CASE("a target outside the vocabulary fails with its value and place") {
  Case c{2, 3, 4, 10};
  Numbers n = numbers_of(c);
  n.targets[4] = 10;
  for (bool training : {false, true}) {
    c.training = training;
    std::string message;
    try {
      run(c, n);
    } catch (const Error& e) {
      message = e.what();
    }
    CHECK(message.find("got 10 at [1, 1]") != std::string::npos);
  }
}

TEST_CASE("cuts: whole shards in groups, long shards in chunks, never more than the budget asks without need") {
  const int64_t mib = 1 << 20;
  LossCut cut = LossCut::choose(256, 8, 8192, 256, 16 * mib);  // 8 MiB a shard
  CHECK(cut.group == 2);
  CHECK(cut.chunk_rows == 512);
  cut = LossCut::choose(512, 2, 50304, 768, 16 * mib);  // no longer than D: whole
  CHECK(cut.group == 1);
  CHECK(cut.chunk_rows == 512);
  cut = LossCut::choose(512, 2, 16384, 512, 16 * mib);
  CHECK(cut.group == 1);
  cut = LossCut::choose(512, 2, 16384, 512, 16 * mib, DType::bf16);  // 16 MiB more of dlogits, 32 less that wait
  CHECK(cut.group == 2);
  cut = LossCut::choose(256, 8, 8192, 256, 16 * mib, DType::bf16);
  CHECK(cut.group == 2);
  cut = LossCut::choose(8192, 1, 8192, 256, 16 * mib);
  CHECK(cut.chunk_rows == 480);
  cut = LossCut::choose(8192, 1, 50304, 768, 1);
  CHECK(cut.chunk_rows == 64);
}
