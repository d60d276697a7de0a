// Every attention row: a query's bits depend only on its visible keys, for every tile; and hardware bf16 has
// the bits of its emulation.
#include <algorithm>
#include <cstring>
#include <string>

#include "compare.h"
#include "head_node.h"
#include "level_rows.h"
#include "mudd/base/parallel.h"
#include "mudd/kernels/convert/convert.h"
#include "mudd/ops/attention/attention.h"

using namespace mudd;
using namespace mudd::test;
using Floats = std::vector<float>;

namespace {

// One slice of `group` adjacent heads, in fp32 or bf16.
struct Sequence {
  int64_t time, group, dim;
  Scores activation = Scores::softmax;
  float eps = 0.01f;
  bool narrow = false, causal = true;
  std::vector<int32_t> mask, segments;
  Floats q, k, v, dout;
  std::vector<bf16> half[4];

  Sequence(int64_t t, int64_t g, int64_t d) : time(t), group(g), dim(d) {
    q = numbers(1, t * g * d), k = numbers(2, t * d), v = numbers(3, t * d), dout = numbers(4, t * g * d);
    for (float& x : q) x *= 3.0f;
  }

  // Return the operand for the caller; elements from `end` are poisoned.
  ConstCells given(const Floats& x, int64_t end, int which, Floats& room) {
    room.assign(x.size(), kPoison);
    std::copy_n(x.begin(), end, room.begin());
    if (!narrow) return room.data();
    half[which].resize(x.size());
    mudd::narrow(static_cast<int64_t>(x.size()), room.data(), half[which].data());
    return half[which].data();
  }

  AttentionSlice slice(Floats& o, Floats& lse, int64_t first, int64_t queries) const {
    AttentionSlice s;
    s.group = group, s.dim = dim, s.queries = queries, s.keys = causal ? first + queries : time;
    s.first_query = first, s.causal = causal, s.scale = 0.3f, s.activation = activation;
    s.divisor = 20.0f, s.eps = eps;
    s.q_row = s.o_row = group * dim, s.q_head = s.o_head = dim, s.k_row = s.v_row = dim;
    s.o = o.data(), s.lse = lse.data();
    if (!mask.empty()) s.key_mask = mask.data();
    if (!segments.empty()) s.segments = segments.data();
    return s;
  }
};

// Run the queries in pieces of these sizes, each with the keys up to its last query and none after it.
Floats forward(const AttentionKernels& kernels, Sequence& x, const std::vector<int64_t>& pieces) {
  const int64_t wide = x.group * x.dim;
  Floats all, keys, values, queries, scratch(static_cast<size_t>(kernels.fwd_scratch(x.dim)), kPoison);
  int64_t done = 0;
  for (const int64_t n : pieces) {
    Floats o(static_cast<size_t>(n * wide), kPoison), lse(static_cast<size_t>(n * x.group));
    AttentionSlice s = x.slice(o, lse, done, n);
    s.q = x.given(x.q, (done + n) * wide, 0, queries) + done * wide;
    s.k = x.given(x.k, s.keys * x.dim, 1, keys), s.v = x.given(x.v, s.keys * x.dim, 2, values);
    const int64_t together = std::min(x.group, std::max<int64_t>(1, kernels.query_tile / n));
    for (int64_t h = 0; h < x.group; h += together)
      for (int64_t t = 0; t < n; t += kernels.query_tile)
        kernels.fwd(s, {h, std::min(h + together, x.group), t, std::min(t + kernels.query_tile, n)},
                    scratch.data());
    all.insert(all.end(), o.begin(), o.end());
    done += n;
  }
  REQUIRE(done == x.time);
  return all;
}

// Return o, the saved values, dq, dk, dv.
std::vector<Floats> everything(const AttentionKernels& kernels, Sequence& x) {
  const int64_t wide = x.group * x.dim;
  Floats o(x.q.size(), kPoison), lse(static_cast<size_t>(x.group * x.time), kPoison),
      delta = lse, dq = o, dk(x.k.size(), kPoison), dv = dk, room[4];
  Floats scratch(static_cast<size_t>(std::max(kernels.fwd_scratch(x.dim), kernels.bwd_scratch(x.dim))), kPoison);
  AttentionSlice s = x.slice(o, lse, 0, x.time);
  s.q = x.given(x.q, x.time * wide, 0, room[0]), s.k = x.given(x.k, x.time * x.dim, 1, room[1]);
  s.v = x.given(x.v, x.time * x.dim, 2, room[2]);
  for (int64_t h = 0; h < x.group; ++h)
    for (int64_t t = 0; t < x.time; t += kernels.query_tile)
      kernels.fwd(s, {h, h + 1, t, std::min(t + kernels.query_tile, x.time)}, scratch.data());
  AttentionGrad g;
  g.key_end = g.query_end = x.time;
  g.dout = x.given(x.dout, x.time * wide, 3, room[3]), g.do_row = g.dq_row = wide, g.do_head = g.dq_head = x.dim;
  g.dk_row = g.dv_row = x.dim;
  kernels.delta(s, g, 0, x.time, delta.data());
  g.delta = delta.data(), g.dq = dq.data(), g.dk = dk.data(), g.dv = dv.data();
  kernels.bwd(s, g, scratch.data());
  return {o, lse, dq, dk, dv};
}

// Add results to the hash of this program, or of the row that runs.
void hash(const std::vector<Floats>& results) {
  for (const Floats& result : results)
    for (const float x : result) results_hash = hash_of(x, results_hash);
}

template <class Body>
void for_all_rows(Body body) {
  for (const DType compute : {DType::f32, DType::bf16})
    for_each_row(attention_rows(compute), [&](const auto& row) {
      if (compute == DType::f32 || std::string(row.name) == "attention_bf16") body(*row.kernels);
    });
}

}  // namespace

TEST_CASE("a query has the same bits in a whole pass, in pieces, alone and beside other heads") {
  for_all_rows([](const AttentionKernels& kernels) {
    for (const Scores activation : {Scores::softmax, Scores::norm_elu})
      for (const bool narrow : {false, true})
        for (const int64_t dim : {12, 40}) {
          CAPTURE(dim);
          Sequence x(139, 3, dim);
          x.activation = activation, x.narrow = narrow;
          for (int64_t t = 0; dim == 40 && t < x.time; ++t) x.mask.push_back(t > 1 && t % 67 != 5);
          const Floats want = forward(kernels, x, {x.time});
          hash({want});
          CHECK(forward(kernels, x, std::vector<int64_t>(static_cast<size_t>(x.time), 1)) == want);
          CHECK(forward(kernels, x, {1, 63, 2, 40, 33}) == want);
          CHECK(forward(kernels, x, {100, 39}) == want);
        }
  });
}

TEST_CASE("all levels give equal bits") {
  for (const Scores activation : {Scores::softmax, Scores::norm_sqrelu, Scores::norm_elu})
    for (const int64_t dim : {4, 17, 24, 40, 64, 130})
      for (const int64_t time : {1, 3, 65, 131, 200}) {
        Sequence x(time, 2, dim);
        x.activation = activation, x.causal = time != 131;
        for (int64_t t = 0; dim == 40 && t < time; ++t) x.mask.push_back(t % 3 != 1);
        for (int64_t t = 0; dim == 24 && t < time; ++t) x.segments.push_back(static_cast<int32_t>(t / 50));
        std::vector<Floats> want;
        for (const auto& row : attention_rows(DType::f32)) {
          if (row.emulated() || !row.runs_here()) continue;
          std::vector<Floats> got;
          parallel_for(1, [&](int64_t, int) { got = everything(*row.kernels, x); });
          if (want.empty()) want = got, hash(want);  // of one row: CPUs differ in their number of rows
          CAPTURE(row.level);
          CAPTURE(dim);
          CAPTURE(time);
          for (size_t i = 0; i < want.size(); ++i)
            CHECK(std::memcmp(got[i].data(), want[i].data(), want[i].size() * sizeof(float)) == 0);
        }
      }
}

TEST_CASE("an infinity or NaN reaches the rows that see it, and only those, at all levels") {
  constexpr float kInf = std::numeric_limits<float>::infinity(), kNaN = std::numeric_limits<float>::quiet_NaN();
  constexpr int64_t kAt = 45;  // the key or query with the number
  for (const Scores activation : {Scores::softmax, Scores::norm_elu})
    for (Floats Sequence::* operand : {&Sequence::q, &Sequence::k, &Sequence::v, &Sequence::dout})
      for (const float number : {kInf, kNaN}) {
        Sequence x(100, 1, 17);
        x.activation = activation;
        (x.*operand)[kAt * x.dim + 3] = number;
        std::vector<Floats> want;
        for (const auto& row : attention_rows(DType::f32)) {
          if (row.emulated() || !row.runs_here()) continue;
          CAPTURE(row.level);
          std::vector<Floats> got;
          parallel_for(1, [&](int64_t, int) { got = everything(*row.kernels, x); });
          if (want.empty()) want = got, hash(want);
          for (size_t i = 0; i < want.size(); ++i) CHECK(equal_numbers(got[i], want[i]));
          for (int64_t i = 0; i < kAt * x.dim; ++i) CHECK(std::isfinite(got[0][static_cast<size_t>(i)]));
        }
      }
}

TEST_CASE("what a query does not see leaves no trace in it") {
  for_all_rows([](const AttentionKernels& kernels) {
    for (const bool causal : {true, false}) {
      Sequence x(131, 2, 24);
      x.causal = causal;
      for (int64_t t = 0; t < x.time; ++t) {
        x.mask.push_back(t % 3 != 1);
        x.segments.push_back(static_cast<int32_t>(t / 50));
      }
      const auto want = everything(kernels, x);
      hash(want);
      for (int64_t t = 1; t < x.time; t += 3)
        for (int64_t d = 0; d < x.dim; ++d) x.k[t * x.dim + d] = 40.0f, x.v[t * x.dim + d] = -1e4f;
      const auto got = everything(kernels, x);
      for (size_t i = 0; i < got.size(); ++i) CHECK(got[i] == want[i]);
      for (int64_t t = 1; t < x.time; t += 3)
        for (int64_t d = 0; d < x.dim; ++d) CHECK((got[3][t * x.dim + d] == 0 && got[4][t * x.dim + d] == 0));
    }
  });
}

TEST_CASE("a query that sees one key passes no gradient to its scores") {
  for_all_rows([](const AttentionKernels& kernels) {
    const auto check_zero = [&](Sequence& x) {
      for (const bool narrow : {false, true})
        for (const float size : {1.0f, 1e3f}) {
          x.narrow = narrow;
          Sequence large = x;
          for (float& q : large.q) q *= size;
          for (const Scores a : {Scores::softmax, Scores::norm_sqrelu, Scores::norm_elu}) {
            large.activation = a, large.eps = 0.0f;
            const auto all = everything(kernels, large);
            CHECK((all[2] == Floats(all[2].size()) && all[3] == Floats(all[3].size())));
          }
        }
    };
    for (const int64_t dim : {4, 17, 64}) {
      CAPTURE(dim);
      for (const bool causal : {true, false}) {
        Sequence single(1, 3, dim);
        single.causal = causal;
        check_zero(single);
        Sequence apart(131, 2, dim);  // each position is a separate segment
        apart.causal = causal;
        for (int32_t t = 0; t < 131; ++t) apart.segments.push_back(7 * t);
        check_zero(apart);
      }
      Sequence masked(131, 2, dim);
      masked.causal = false, masked.mask.assign(131, 0), masked.mask[77] = 1;
      check_zero(masked);
      Sequence first(131, 2, dim);  // only the first position counts
      std::fill(first.dout.begin() + 2 * dim, first.dout.end(), 0.0f);
      check_zero(first);
      std::fill(first.dout.begin() + 2 * dim, first.dout.begin() + 4 * dim, 1.0f);  // the second sees two keys
      const auto all = everything(kernels, first);
      CHECK(std::any_of(all[2].begin(), all[2].end(), [](float g) { return g != 0.0f; }));
    }
  });
}

TEST_CASE("attention on the bf16 units gives the bits of their emulation") {
  const auto row_at = [](const std::string& level) -> const AttentionKernels* {
    for (const auto& row : attention_rows(DType::bf16))
      if (level == row.level && row.runs_here()) return row.kernels;
    return nullptr;
  };
  for (const std::string level : {"avx512_bf16", "amx_bf16"}) {
    const AttentionKernels *real = row_at(level), *emulated = row_at("emu_" + level);
    REQUIRE(emulated);
    std::printf("  %s%s\n", level.c_str(), real ? "" : ": not on this CPU");
    for (const int64_t time : {1, 2, 33, 200})
      for (const int64_t dim : {4, 24, 33, 64})
        for (const bool causal : {true, false}) {
          if (!real) continue;
          Sequence x(time, 2, dim);
          x.causal = causal, x.narrow = dim != 24;
          const auto want = everything(*emulated, x), got = everything(*real, x);
          for (size_t i = 0; i < got.size(); ++i)
            CHECK(std::memcmp(got[i].data(), want[i].data(), got[i].size() * sizeof(float)) == 0);
        }
  }
}
