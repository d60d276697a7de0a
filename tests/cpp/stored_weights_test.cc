// levels, units: frozen weights stored in bf16 or fp16 are read as their fp32 copy would be, bit for bit.
#include <cmath>
#include <cstring>

#include "compare.h"
#include "mudd/base/check.h"
#include "mudd/base/parallel.h"
#include "mudd/graph/executor.h"
#include "mudd/kernels/convert/convert.h"
#include "mudd/kernels/gemm/gemm.h"
#include "mudd/params/init.h"
#include "mudd/params/param_store.h"

using namespace mudd;
using namespace mudd::test;

namespace {

using Floats = std::vector<float>;

// The value of a half by its definition.
double value_of(uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const double size = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  return bits & 0x8000 ? -size : size;
}

bool is_number(uint16_t bits) { return (bits >> 10 & 31) != 31; }

// Values rounded to a type, in its format and as fp32.
struct Stored {
  DType type;
  std::vector<uint16_t> words;
  Floats wide;

  Stored(DType t, uint64_t seed, int64_t n) : type(t), words(static_cast<size_t>(n)), wide(words.size()) {
    const Floats x = numbers(seed, n);
    copy_rounded(n, x.data(), {words.data(), type});
    copy_wide(n, {words.data(), type}, wide.data());
  }
  ConstCells cells() const { return {words.data(), type}; }
};

Parameter matrix(const char* name, std::vector<int64_t> shape, Role role, DType stored) {
  return {.name = name,
          .shape = std::move(shape),
          .role = role,
          .init = "normal",
          .init_scale = 1,
          .trainable = stored == DType::f32,
          .stored = stored};
}

}  // namespace

TEST_CASE("halves: each is loaded as its value, and stored as itself; others round to the nearest, ties to even") {
  std::vector<f16> all(65536), again(65536);
  for (size_t i = 0; i < all.size(); ++i) all[i].bits = static_cast<uint16_t>(i);
  for_each_row(convert_rows(), [&](const auto& row) {
    Floats wide(all.size());
    row.kernels->widen_half(65536, all.data(), wide.data());
    row.kernels->narrow_half(65536, wide.data(), again.data());
    for (size_t i = 0; i < all.size(); ++i) {
      const auto bits = static_cast<uint16_t>(i);
      const bool nan = !is_number(bits) && (bits & 1023);
      if (is_number(bits)) REQUIRE(static_cast<double>(wide[i]) == value_of(bits));
      else REQUIRE((nan ? std::isnan(wide[i]) : std::isinf(wide[i])));
      REQUIRE(std::signbit(wide[i]) == (bits >> 15 == 1));
      if (nan) REQUIRE((again[i].bits & 0x7fff) > 0x7c00);
      else REQUIRE(again[i].bits == bits);
    }
    for (uint16_t low = 0; low < 0x7bff; ++low) {  // between a half and the next
      const double a = value_of(low), b = value_of(static_cast<uint16_t>(low + 1)), middle = (a + b) / 2;
      const Floats x = {static_cast<float>(middle), std::nextafter(static_cast<float>(middle), 0.0f),
                        std::nextafter(static_cast<float>(middle), 1e6f), -static_cast<float>(middle)};
      f16 got[4];
      row.kernels->narrow_half(4, x.data(), got);
      const uint16_t even = low % 2 == 0 ? low : low + 1;
      REQUIRE(got[0].bits == even);
      REQUIRE(got[1].bits == low);
      REQUIRE(got[2].bits == low + 1);
      REQUIRE(got[3].bits == (even | 0x8000));
    }
    const Floats large = {65519.996f, 65520.0f, 1e30f, 1e-30f, 1e-45f};
    f16 got[5];
    row.kernels->narrow_half(5, large.data(), got);
    CHECK(got[0].bits == 0x7bff);
    CHECK(got[1].bits == 0x7c00);
    CHECK(got[2].bits == 0x7c00);
    CHECK(got[3].bits == 0);
    CHECK(got[4].bits == 0);
  });
}

TEST_CASE("packing: the panels of a stored bf16 or fp16 matrix are those of its fp32 copy, for bf16 and fp32") {
  for (DType compute : {DType::f32, DType::bf16})
    for (DType type : {DType::bf16, DType::f16})
      for (int64_t rows : {1, 31, 64, 65, 200})
        for (int64_t cols : {1, 33, 64, 129, 530})
          for (int threads : {1, 3}) {
            set_num_threads(threads);
            const Stored w(type, 3, 2 * rows * cols);
            for (bool transposed : {false, true}) {
              const int64_t k = transposed ? cols : rows, n = transposed ? rows : cols;
              const auto bytes = static_cast<size_t>(2 * packed_bytes(k, n, compute));
              std::vector<char> got(bytes, 7), want(bytes, 7);
              const Unpacked stored{w.cells(), rows, cols, transposed, got.data(), 2},
                  wide{w.wide.data(), rows, cols, transposed, want.data(), 2};
              pack_weights({&stored, 1}, compute);
              pack_weights({&wide, 1}, compute);
              REQUIRE(got == want);
            }
          }
  set_num_threads(0);
}

TEST_CASE("the store: half the bytes, equal values, packs and rows of an embedding, in bf16 graphs too") {
  constexpr int64_t kWords = 37, kWidth = 24;
  for (DType compute : {DType::f32, DType::bf16})
    for (DType type : {DType::bf16, DType::f16}) {
      ParamStore narrow(compute), wide(compute);
      for (ParamStore* s : {&narrow, &wide}) {
        const DType own = s == &narrow ? type : DType::f32;
        s->parameters().declare(matrix("table", {kWords, kWidth}, Role::embedding, own));
        s->parameters().declare(matrix("w", {3, kWidth, 16}, Role::matrix, own));
        s->parameters().declare(matrix("gain", {kWidth}, Role::gain, DType::f32));
        s->allocate();
        initialize(*s, 5);
      }
      for (int i : {0, 1}) {  // the copy has the rounded values
        CHECK(narrow.planes().master(i) == nullptr);
        const Tensor w = narrow.planes().weights(i);
        CHECK(w.dtype == type);
        copy_wide(w.rows * w.cols, w.cells(), wide.planes().master(i));
      }
      CHECK(wide.planes().weight_bytes() == 4 * (896 + 1152 + 32));  // each to a multiple of 16 numbers
      CHECK(narrow.planes().weight_bytes() == 2 * (896 + 1152) + 4 * 32);
      for (Pack how : {Pack::plain, Pack::transposed}) {
        for (ParamStore* s : {&narrow, &wide}) s->packs().request(1, how), s->packs().repack_all();
        const int64_t bytes = 3 * narrow.packs().stride(1, how);
        CHECK(std::memcmp(narrow.packs().at(1, how), wide.packs().at(1, how), static_cast<size_t>(bytes)) == 0);
      }
      Floats rows[2];
      for (ParamStore* s : {&narrow, &wide}) {
        Graph g(false, Shards::cut(1, 1), compute);
        const ValueId ids = g.input("ids", {{1, 5}, DType::i32}), x = g.input("x", {{1, 5, kWidth}, DType::f32});
        const ValueId table = g.parameter("table", {{kWords, kWidth}, DType::f32}, 0, false);
        const ValueId plain = g.apply("embedding", {}, {ids, table}, "")[0];
        const ValueId added = g.apply("embedding", {}, {ids, table, x}, "")[0];
        Executor e(std::move(g), *s, {}, {plain, added}, {});
        std::memcpy(e.value(e.input("x")).data, numbers(2, 5 * kWidth).data(), 5 * kWidth * sizeof(float));
        for (int i = 0; i < 5; ++i) e.value(e.input("ids")).i32()[i] = i * 9;
        e.run({}, 0);
        for (ValueId v : {plain, added})
          rows[s == &wide].insert(rows[s == &wide].end(), e.value(v).f32(), e.value(v).f32() + 5 * kWidth);
      }
      CHECK(same_bits(rows[0], rows[1]));
    }
}

TEST_CASE("only frozen matrices are stored in 16 bits, and only ops that know how read them") {
  ParamStore store;
  CHECK_THROWS_WITH_AS(store.parameters().declare(matrix("gain", {8}, Role::gain, DType::bf16)),
                       "[parameter] gain: only frozen matrices are stored in 16 bits, and of them no router",
                       Error);
  CHECK_THROWS_AS(store.parameters().declare(matrix("router", {8, 4}, Role::router, DType::f16)), Error);
  Parameter trains = matrix("w", {8, 8}, Role::matrix, DType::f16);
  trains.trainable = true;
  CHECK_THROWS_AS(store.parameters().declare(trains), Error);
  store.parameters().declare(matrix("w", {1, 8}, Role::matrix, DType::f16));
  store.parameters().declare(matrix("free", {8, 8}, Role::matrix, DType::f32));
  store.allocate();
  CHECK(store.parameters().trained() == std::vector<int>{1});
  CHECK_THROWS_WITH_AS(store.parameters().train_only({0, 1}),
                       "[train_only] w: it is stored in float16, as only frozen parameters are", Error);
  Graph g(false, Shards::cut(1, 1));
  const ValueId x = g.input("x", {{1, 8}, DType::f32});
  const ValueId w = g.parameter("w", {{1, 8}, DType::f32}, 0, false);
  const ValueId sum = g.apply("add", {}, {x, g.apply("glu", {}, {w, w}, "")[0]}, "")[0];
  CHECK_THROWS_WITH_AS(Executor(std::move(g), store, {}, {sum}, {}),
                       "[executor] w: expected float32 for glu, got float16; set train.frozen_dtype=fp32", Error);
}
