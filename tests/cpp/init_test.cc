// Initial values: by element index, by name and seed, moments, threads, refusals.
#include "mudd/params/init.h"

#include "compare.h"
#include "mudd/base/check.h"
#include "mudd/base/parallel.h"
#include "mudd/base/rng.h"

using namespace mudd;
using namespace mudd::test;

namespace {

Parameter parameter(const std::string& name, std::vector<int64_t> shape, const std::string& init, double scale) {
  Parameter p;
  p.name = name;
  p.shape = std::move(shape);
  p.init = init;
  p.init_scale = scale;
  return p;
}

std::vector<float> values(const Parameter& p, uint64_t seed) {
  std::vector<float> v(static_cast<size_t>(p.size()), 77.0f);
  initialize(p, seed, 0, p.size(), v.data());
  return v;
}

// Mean of x^power.
double moment(const std::vector<float>& v, int power) {
  double sum = 0;
  for (float x : v) sum += std::pow(static_cast<double>(x), power);
  return sum / static_cast<double>(v.size());
}

}  // namespace

TEST_CASE("normal and uniform have their moments and do not depend on the threads") {
  const Parameter normal = parameter("blocks.0.attn.q.w", {300, 701}, "normal", 0.02);
  const Parameter uniform = parameter("blocks.0.attn.q.w", {300, 701}, "uniform", 0.5);
  set_num_threads(1);
  const auto n = values(normal, 7), u = values(uniform, 7);
  const double many = static_cast<double>(n.size());
  CHECK(std::fabs(moment(n, 1)) < 5 * 0.02 / std::sqrt(many));
  CHECK(std::fabs(moment(n, 2) / 4e-4 - 1) < 5 * std::sqrt(2 / many));
  CHECK(std::fabs(moment(n, 4) / (3 * 16e-8) - 1) < 0.05);
  CHECK(std::fabs(moment(u, 2) * 12 - 1) < 0.02);
  for (float x : u) CHECK((x >= -0.5f && x < 0.5f));
  const Parameter cut = parameter("blocks.0.attn.q.w", {300, 701}, "truncated_normal", 0.02);
  const auto t = values(cut, 7);
  CHECK(std::fabs(moment(t, 2) / 4e-4 - 1) < 5 * std::sqrt(2 / many));
  for (float x : t) CHECK(std::fabs(x) <= 2 * 0.02f / 0.8796f);
  for (int threads : {2, 3}) {
    set_num_threads(threads);
    CHECK(values(normal, 7) == n);
    CHECK(values(uniform, 7) == u);
    CHECK(values(cut, 7) == t);
  }
  set_num_threads(0);
}

TEST_CASE("an element depends on its index, the name and the seed, and on nothing else") {
  const auto long_one = values(parameter("w", {1, 70000}, "normal", 1), 3);
  const auto short_one = values(parameter("w", {69999, 1}, "normal", 1), 3);
  CHECK(std::equal(short_one.begin(), short_one.end(), long_one.begin()));
  CHECK(values(parameter("v", {1, 70000}, "normal", 1), 3) != long_one);
  CHECK(values(parameter("w", {1, 70000}, "normal", 1), 4) != long_one);
  float one = 0;
  fill_normal(&one, 69000, 69001, 1, philox_key(3, "init.w"));
  CHECK(one == long_one[69000]);
}

TEST_CASE("constants, the whole store with its packs, refusals") {
  CHECK(values(parameter("g", {5}, "ones", 0), 1) == std::vector<float>(5, 1.0f));
  CHECK(values(parameter("g", {5}, "zeros", 0), 1) == std::vector<float>(5, 0.0f));
  CHECK(values(parameter("g", {5}, "constant", -0.25), 1) == std::vector<float>(5, -0.25f));
  ParamStore store;
  store.parameters().declare(parameter("gain", {9}, "ones", 0));
  store.parameters().declare(parameter("w", {9, 6}, "normal", 0.5));
  store.allocate();
  store.packs().request(1, Pack::plain);
  initialize(store, 11);
  CHECK(std::vector<float>(store.planes().master(1), store.planes().master(1) + 54) ==
        values(store.parameters().at(1), 11));
  CHECK(store.planes().master(0)[8] == 1.0f);
  CHECK(*reinterpret_cast<const float*>(store.packs().at(1, Pack::plain)) == store.planes().master(1)[0]);
  CHECK_THROWS_WITH_AS(values(parameter("w", {2}, "orthogonal", 1), 1),
                       "[init] w.init: expected normal, truncated_normal, uniform, constant, zeros, ones or "
                       "last_column, got 'orthogonal'",
                       Error);
  CHECK_THROWS_AS(values(parameter("w", {2}, "normal", -1), 1), Error);
  CHECK_THROWS_AS(values(parameter("w", {2}, "constant", NAN), 1), Error);
}

TEST_CASE("last_column: ones there, zeros elsewhere") {
  CHECK(values(parameter("blocks.0.mix.bias", {2, 3}, "last_column", 0), 1) ==
        std::vector<float>{0, 0, 1, 0, 0, 1});
}

TEST_CASE("a part has the values of the whole, of every kind and in the types that weights are stored in") {
  const auto widths = [](const char* kind) { return parameter("w", {70, 3000}, kind, 0.5); };
  for (const char* kind : {"normal", "truncated_normal", "uniform", "constant", "zeros", "ones", "last_column"}) {
    const std::vector<float> whole = values(widths(kind), 7);
    for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, 3000}, {63000, 210000}, {66000, 66000}}) {
      std::vector<float> part(static_cast<size_t>(end - begin));
      initialize(widths(kind), 7, begin, end, part.data());
      CHECK(std::equal(part.begin(), part.end(), whole.begin() + begin));
    }
  }
  ParamStore whole, half;
  for (ParamStore* store : {&whole, &half}) {
    store->parameters().declare(parameter("gain", {9000}, "normal", 1));
    Parameter frozen = parameter("w", {64, 32}, "normal", 0.5);
    frozen.trainable = false;
    frozen.stored = DType::bf16;
    store->parameters().declare(frozen);
  }
  half.parameters().hold(0, 4096, 9000);
  half.parameters().hold(1, 32 * 16, 32 * 48);
  CHECK_THROWS_AS(half.parameters().hold(1, 5, 64), Error);
  for (ParamStore* store : {&whole, &half}) {
    store->allocate();
    initialize(*store, 3);
  }
  CHECK_THROWS_AS(half.parameters().hold(0, 0, 9000), Error);
  CHECK(*half.planes().master_at(0, 5000) == *whole.planes().master_at(0, 5000));
  CHECK(half.planes().master(0) == half.planes().master_at(0, 4096));
  const Tensor w = half.planes().weights(1);
  CHECK(w.rows == 32);
  CHECK(std::memcmp(w.data, (whole.planes().weights(1).cells() + 32 * 16).data, 32 * 32 * 2) == 0);
  CHECK(half.planes().weight_bytes() < whole.planes().weight_bytes() * 2 / 3);
}
