// levels, units: one set of bits for every way to run cross_entropy, in fp32 and bf16; how its rows are cut.
#include <algorithm>

#include "compare.h"
#include "cross_entropy_runner.h"
#include "mudd/base/parallel.h"
#include "mudd/ops/cross_entropy/loss_cut.h"

using namespace mudd;
using namespace mudd::test;
using namespace mudd::test::loss;

namespace {

// `want` comes out in both modes, with both packings, and with these chunks and threads.
void check_everywhere(Case c, const Numbers& n, const Result& want, std::initializer_list<int64_t> chunks,
                      std::initializer_list<int> threads) {
  for (const int64_t chunk_bytes : chunks)
    for (const bool training : {false, true})
      for (const bool parameter : {false, true})
        for (const int count : threads) {
          c.chunk_bytes = chunk_bytes;
          c.training = training;
          c.parameter = parameter;
          set_num_threads(count);
          CHECK(same_bits(run(c, n), want));
        }
  set_num_threads(0);
}

}  // namespace

TEST_CASE("one set of bits: modes, packing, chunks, threads, gradients added") {
  for (Case c : {Case{8, 12, 24, 150, 8}, Case{5, 40, 16, 65, 4}, Case{2, 150, 8, 37, 2}, Case{1, 200, 12, 90}}) {
    const Numbers n = numbers_of(c);
    const Result want = run(c, n);
    check_everywhere(c, n, want, {1, 64 * 37 * 4, 30000, 60000}, {1, 2, 3});
    // Adds, in separate memory and in place; dh added to previous values.
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
        joined.guessed.insert(joined.guessed.end(), got.guessed.begin(), got.guessed.end());
        joined.dh.insert(joined.dh.end(), got.dh.begin(), got.dh.end());
      }
      joined.dhead = waiting[0];
      CHECK(same_bits(joined, whole));
    }
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
    check_everywhere(c, n, want, {1, 64 * 37 * 4, 30000}, {1, 3});
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

TEST_CASE("cuts: whole shards in groups, long shards in chunks, never more than the budget asks without need") {
  const int64_t mib = 1 << 20;
  LossCut cut = LossCut::choose(256, 8, 8192, 256, 16 * mib);  // 8 MiB a shard
  CHECK(cut.group == 2);
  CHECK(cut.chunk_rows == 512);
  cut = LossCut::choose(512, 1, 50304, 768, 16 * mib);  // no longer than D: whole
  CHECK(cut.chunk_rows == 512);
  cut = LossCut::choose(512, 2, 50304, 768, 16 * mib);  // 98 MiB more of dlogits, 147 less that wait
  CHECK(cut.group == 2);
  CHECK(cut.chunk_rows == 1024);
  cut = LossCut::choose(512, 4, 16384, 512, 16 * mib);  // 32 and 32, then 64 and 32
  CHECK(cut.group == 2);
  cut =
      LossCut::choose(512, 4, 16384, 512, 16 * mib, DType::f32, false);  // a head without gradient: nothing waits
  CHECK(cut.group == 1);
  cut = LossCut::choose(600, 2, 16384, 768, 16 * mib);
  CHECK(cut.group == 2);
  cut = LossCut::choose(600, 2, 16384, 512, 16 * mib);  // longer than D: in chunks
  CHECK(cut.group == 1);
  cut = LossCut::choose(512, 4, 16384, 512, 16 * mib, DType::bf16);  // 16 and 32, then 32 and 32
  CHECK(cut.group == 2);
  cut = LossCut::choose(256, 8, 8192, 256, 16 * mib, DType::bf16);
  CHECK(cut.group == 2);
  cut = LossCut::choose(8192, 1, 8192, 256, 16 * mib);
  CHECK(cut.chunk_rows == 480);
  cut = LossCut::choose(8192, 1, 50304, 768, 1);
  CHECK(cut.chunk_rows == 64);
}
