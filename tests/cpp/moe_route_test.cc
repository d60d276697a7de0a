// levels: moe_route against its reference; equal router bits of fp32 and bf16 graphs; capacity; jitter.
#include <cmath>

#include "compare.h"
#include "moe_runner.h"
#include "mudd/base/rng.h"
#include "mudd/ops/moe_route/capacity.h"
#include "mudd/ops/moe_route/moe_route.h"
#include "mudd/ops/moe_route/reference.h"

using namespace mudd;
using namespace mudd::test;

TEST_CASE("moe_route rows: probabilities, their metrics, and the balance gradient on every edge of the lanes") {
  for_each_row(moe_route_rows(), [](const auto& row) {
    for (int64_t E : {1, 2, 7, 8, 9, 16, 17, 33}) {
      const int64_t rows = 3;
      Floats z = numbers(1, rows * E);
      for (float& v : z) v *= 6;
      Floats p = z, G = numbers(2, E), dz = numbers(3, E), got = dz;
      std::vector<RouteRow> stats(static_cast<size_t>(rows));
      row.kernels->softmax(rows, E, p.data(), stats.data());
      for (int64_t r = 0; r < rows; ++r) {
        std::vector<double> wide = widen({z.begin() + r * E, z.begin() + (r + 1) * E}), want(wide.size()),
                            gates(1);
        int64_t chosen = 0;
        const double lse = reference::route(E, int64_t{1}, wide.data(), want.data(), &chosen, gates.data());
        CHECK(distance(std::vector<float>(p.begin() + r * E, p.begin() + (r + 1) * E), want, want.size()) <=
              tolerance("moe_route.p"));
        const RouteRow& s = stats[static_cast<size_t>(r)];
        CHECK(std::fabs(std::log(static_cast<double>(s.sum)) + s.max - lse) <=
              tolerance("moe_route.lse") * (1 + std::fabs(lse)));
        double mean = 0, inner = 0;
        for (size_t e = 0; e < want.size(); ++e) {
          mean += want[e] * (wide[e] - s.max);
          inner += want[e] * G[e];
        }
        CHECK(std::fabs(s.mean - mean) <= tolerance("moe_route.mean"));
        if (r > 0) continue;
        row.kernels->balance(E, p.data(), G.data(), 0.5f, got.data());
        for (size_t e = 0; e < want.size(); ++e)
          CHECK(std::fabs(got[e] - (dz[e] + want[e] * (G[e] - inner + 0.5))) <= tolerance("moe_route.dz"));
      }
    }
  });
}

TEST_CASE("moe_route reads and writes bf16 around a router in fp32") {
  const int64_t B = 2, T = 7, D = 21, E = 5;
  const Floats x = rounded(numbers(1, B * T * D)), w = numbers(2, D * E), dgates = numbers(3, B * T * 2);
  for (double jitter : {0.0, 0.3}) {
    const auto all = [&](DType compute, bool narrow) {
      Runner run("moe_route", attributes({{"jitter", jitter}}),
                 {{{{B, T, D}, narrow ? DType::bf16 : DType::f32}, x.data()}, {{{D, E}}, w.data()}},
                 Shards::cut(B, 2), compute, narrow);
      run.node->forward(run.run);
      std::vector<Floats> got = run.backward({dgates.data(), nullptr, nullptr});
      got[0] = rounded(got[0]);
      got.push_back(run.out(0));
      got.push_back(run.out(2));
      return got;
    };
    const auto want = all(DType::f32, false);
    CHECK(all(DType::bf16, false) == want);
    CHECK(all(DType::bf16, true) == want);
  }
}

TEST_CASE("capacity: the example of the benchmark, both policies, floors and ceilings") {
  // Four tokens, four experts, k = 2, factor 1: an expert takes two slots (docs/maths/moe.md, 4: expert 1 of t2
  // and of t3 is dropped).
  const Capacity position{1.0, false, false}, probs{1.0, false, true}, shard{1.25, true, false};
  CHECK(position.of(4, 2, 4) == 2);
  CHECK(Capacity{1.25, false, false}.of(32768, 2, 8) == 10240);
  CHECK((Capacity{1.25, false, false}.of(10, 2, 8) == 3 && shard.of(10, 2, 8) == 4));
  CHECK(Capacity{100.0, false, false}.of(7, 2, 8) == 7);
  Ints experts = {1, 0, 1, 2, 1, 3, 0, 1}, work(12);
  const Ints chosen = experts;
  Floats gates = {0.6f, 0.4f, 0.5f, 0.5f, 0.9f, 0.1f, 0.7f, 0.5f};
  drop_over_capacity(position, 2, 8, 4, gates.data(), experts.data(), work.data());
  CHECK(experts == Ints{1, 0, 1, 2, -1, 3, 0, -1});
  experts = chosen;
  drop_over_capacity(probs, 2, 8, 4, gates.data(), experts.data(), work.data());
  CHECK(experts == Ints{1, 0, -1, 2, 1, 3, 0, -1});  // 0.9 and 0.6 stay
  experts = chosen;
  drop_over_capacity(probs, 3, 8, 4, gates.data(), experts.data(), work.data());
  CHECK(experts == Ints{1, 0, 1, 2, 1, 3, 0, -1});  // of two equal gates the earlier slot stays
  experts = chosen;
  drop_over_capacity(position, 0, 8, 4, gates.data(), experts.data(), work.data());
  CHECK(experts == Ints(8, -1));
}

TEST_CASE("moe_route: jitter is drawn by step, sample, layer and element, and only then") {
  const int64_t B = 4, T = 5, D = 16, E = 6;
  const Floats x = numbers(1, B * T * D), w = numbers(2, D * E);
  const auto routed = [&](int64_t layer, int64_t step, int64_t first, int64_t samples, double jitter) {
    Runner run("moe_route", attributes({{"jitter", jitter}, {"layer", layer}}),
               {{{{samples, T, D}}, x.data() + first * T * D}, {{{D, E}}, w.data()}}, Shards{});
    run.step = {.seed = 3, .step = step, .first_sample = first};
    run.node->forward(run.run);
    return run.out(0);
  };
  const Floats all = routed(1, 2, 0, B, 0.3);
  const Floats last = routed(1, 2, 2, 2, 0.3);
  CHECK(std::equal(last.begin(), last.end(), all.begin() + 2 * T * 2));
  // By its definition: a router without jitter over x times 1 + e (2 u - 1), u from the counter.
  for (const auto& [layer, step] : {std::pair<uint32_t, uint32_t>{1, 2}, {1, 3}, {2, 2}}) {
    Floats noisy = x;
    for (uint32_t b = 0; b < B; ++b)
      for (uint32_t e = 0; e < T * D; ++e) {
        const PhiloxBlock words = philox({step, b, layer, e / 4}, philox_key(3, "moe.jitter"));
        noisy[b * T * D + e] *= 1.0f + 0.3f * (2.0f * uniform(words[e % 4]) - 1.0f);
      }
    Runner run("moe_route", attributes({}), {{{{B, T, D}}, noisy.data()}, {{{D, E}}, w.data()}}, Shards{});
    run.node->forward(run.run);
    CHECK(run.out(0) == routed(layer, step, 0, B, 0.3));
    CHECK(run.out(0) != routed(layer, step, 0, B, 0.0));
  }
}
