// levels: ngram_rows decodes with a cache to the bits of a whole sequence; the messages of its errors.
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "compare.h"
#include "mudd/base/check.h"
#include "ngram_rows_runner.h"

using namespace mudd;
using namespace mudd::test;
using namespace mudd::test::ngrams;

namespace {

// Decodes in pieces with one cache, as a program with a planned graph for each length does.
struct Decoder {
  Case c;
  std::vector<float> cache;
  int64_t length = 0;

  explicit Decoder(const Case& given) : c(given), cache(static_cast<size_t>(c.samples * c.cache_rows), -7) {}

  // Return y [B, n, D] of the next n ids of each sample.
  std::vector<float> next(const std::vector<int32_t>& ids, int64_t n) {
    Case piece = c;
    piece.length = n;
    std::vector<int32_t> some;
    for (int64_t b = 0; b < c.samples; ++b)
      some.insert(some.end(), ids.begin() + b * c.length + length, ids.begin() + b * c.length + length + n);
    Runner run(piece, some);
    run.cache() = cache;
    run.step().cache_length = length;
    const auto y = run.forward();
    cache = run.cache();
    length += n;
    return y;
  }
};

// Check the next n tokens against y [B, T, D] of the whole sequences.
void check_next(Decoder& decoder, const std::vector<int32_t>& ids, int64_t n, const std::vector<float>& whole) {
  const Case& c = decoder.c;
  std::vector<float> want;
  for (int64_t b = 0; b < c.samples; ++b) {
    const auto first = whole.begin() + (b * c.length + decoder.length) * c.d;
    want.insert(want.end(), first, first + n * c.d);
  }
  CHECK(same_bits(decoder.next(ids, n), want));
}

std::vector<float> whole_of(Case c, const std::vector<int32_t>& ids) {
  c.cache_rows = 0;
  return Runner(c, ids).forward();
}

// Return what infer() says about inputs of these specs; an empty shape: absent.
std::string infer_error(const std::vector<TensorSpec>& specs, bool wants = false,
                        const std::string& orders = "2,3") {
  Attributes a;
  a.values = {{"orders", orders}};
  const Shards shards{{0, 2}};
  Inference io;
  for (const TensorSpec& s : specs) io.inputs_.push_back(s.shape.empty() ? nullptr : &s);
  io.parameter_ = {false, true, false, false};
  io.gathered_ = {false, false, false, false};
  io.wants_ = {false, wants, false, false};
  io.shards_ = &shards;
  try {
    make_node("ngram_rows", a)->infer(io);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

}  // namespace

TEST_CASE("pieces of any length equal the whole sequence, bit for bit") {
  for (const char* orders : {"1", "2", "3", "2,3", "1,2,3", "3,1"})
    for (const int64_t end : {-1, 7})
      for (const int64_t size : {1, 3, 7}) {
        const Case c{2, 42, 500, 9, orders, 3, end, false, 1, 42};
        const auto ids = ids_of(c);
        const auto whole = whole_of(c, ids);
        Decoder decoder(c);
        while (decoder.length < c.length) check_next(decoder, ids, size, whole);
        CHECK(std::equal(ids.begin(), ids.end(), decoder.cache.begin()));
      }
}

TEST_CASE("after Tmax tokens a single one replaces the oldest, and equals the whole sequence") {
  for (const char* orders : {"2", "2,3", "1,2,3"})
    for (const int64_t end : {-1, 7})
      for (const int64_t cache_rows : {1, 2, 3, 5, 8})
        for (const bool prompt : {false, true}) {
          if (cache_rows == 1 && std::string(orders) != "2") continue;
          const Case c{2, 29, 500, 9, orders, 3, end, false, 1, cache_rows};
          const auto ids = ids_of(c);
          const auto whole = whole_of(c, ids);
          Decoder decoder(c);
          if (prompt) check_next(decoder, ids, cache_rows, whole);  // T = Tmax
          while (decoder.length < c.length) check_next(decoder, ids, 1, whole);
          for (int64_t b = 0; b < c.samples; ++b)
            for (int64_t t = c.length - cache_rows; t < c.length; ++t)
              CHECK(decoder.cache[b * cache_rows + t % cache_rows] == static_cast<float>(ids[b * c.length + t]));
        }
}

TEST_CASE("infer names the argument that is wrong") {
  const TensorSpec ids{{2, 5}, DType::i32}, table{{9, 4}, DType::f32}, none{};
  const auto has = [](const std::string& message, const char* part) {
    INFO(message);
    CHECK(message.find(part) != std::string::npos);
  };
  CHECK(infer_error({ids, table, ids, none}, true).empty());
  CHECK(infer_error({ids, table, none, {{2, 1, 5, 1}, DType::f32}}).empty());
  for (const char* orders : {"", "0", "4", ",", "2,", ",2", "2,,3", "2;3", "23", "2, 3", "2,2", "1,2,3,1"})
    has(infer_error({ids, table, none, none}, false, orders),
        (std::string("[ngram_rows] orders: expected different numbers from 1 to 3 such as 2,3, got '") + orders +
         "'")
            .c_str());
  has(infer_error({{{2, 5}, DType::f32}, table, none, none}), "[ngram_rows] ids: expected int32[B, T], got f");
  has(infer_error({{{5}, DType::i32}, table, none, none}), "[ngram_rows] ids: expected int32[B, T], got i");
  for (const TensorSpec& wrong : {TensorSpec{{9, 4}, DType::i32},
                                  {{9, 4, 1}, DType::f32},
                                  {{0, 4}, DType::f32},
                                  {{1L << 31, 1}, DType::f32}})
    has(infer_error({ids, wrong, none, none}), "[ngram_rows] table: expected float32[R, D] with R < 2^31, got ");
  CHECK(infer_error({ids, {{(1L << 31) - 1, 1}, DType::f32}, none, none}).empty());
  for (const TensorSpec& wrong : {TensorSpec{{2, 5}, DType::f32}, {{1, 5}, DType::i32}})
    has(infer_error({ids, table, wrong, none}), "[ngram_rows] segments: expected int32[2, 5], got ");
  has(infer_error({{{1 << 30, 1}, DType::i32}, table, none, none}),
      "[ngram_rows] ids: expected fewer than 2^31 n-grams, got 2147483648");
  const TensorSpec cache{{2, 1, 5, 1}, DType::f32};
  has(infer_error({ids, table, ids, cache}), "[ngram_rows] segments: not together with cache");
  has(infer_error({ids, table, none, cache}, true), "[ngram_rows] cache: there is no backward through a cache");
  for (const TensorSpec& wrong : {TensorSpec{{2, 1, 5, 1}, DType::i32},
                                  {{2, 1, 5}, DType::f32},
                                  {{1, 1, 5, 1}, DType::f32},
                                  {{2, 2, 5, 1}, DType::f32},
                                  {{2, 1, 4, 1}, DType::f32},
                                  {{2, 1, 5, 2}, DType::f32}})
    has(infer_error({ids, table, none, wrong}),
        "[ngram_rows] cache: expected float32[2, 1, Tmax, 1] with Tmax >= 5, got ");
}

TEST_CASE("forward refuses ids and lengths that it cannot look up") {
  const auto fails = [](const Case& c, const std::vector<int32_t>& ids, int64_t length, const std::string& message,
                        float cached = 0) {
    Runner run(c, ids);
    std::fill(run.cache().begin(), run.cache().end(), cached);
    const auto before = run.cache();
    run.step().cache_length = length;
    CHECK_THROWS_WITH_AS(run.forward(), doctest::Contains(message.c_str()), Error);
    CHECK(std::memcmp(run.cache().data(), before.data(), before.size() * sizeof(float)) == 0);
  };
  Case c{2, 5, 100, 4};
  auto ids = ids_of(c);
  fails(c, ids, 3, "[ngram_rows] cache: expected one for tokens after 3 tokens of a KV cache");
  ids[7] = std::numeric_limits<int32_t>::max();
  CHECK(same_bits(Runner(c, ids).forward(), reference_forward(c, ids, Runner(c).table())));
  ids[7] = -1;
  fails(c, ids, 0, "[ngram_rows] ids: expected values in [0, 2147483648), got -1 at [1, 2]");
  Runner backward(c, ids);
  CHECK_THROWS_WITH_AS(backward.backward(numbers(3, c.positions() * c.d)), doctest::Contains("got -1 at"), Error);
  c.cache_rows = 8;
  ids[7] = 1 << 24;
  fails(c, ids, 0, "[ngram_rows] ids: expected values in [0, 16777216), got 16777216 at [1, 2]");
  ids[7] = (1 << 24) - 1;
  Runner largest(c, ids);
  largest.forward();
  CHECK(largest.cache()[8 + 2] == 16777215.0f);
  for (const int64_t length : {int64_t{-1}, int64_t{4}, std::numeric_limits<int64_t>::max() / 2})
    fails(c, ids, length,
          "[ngram_rows] cache_length: expected at most 3 (Tmax - T), got " + std::to_string(length));
  for (const float cached : {-1.0f, 16777216.0f, std::numeric_limits<float>::quiet_NaN()})
    fails(c, ids, 1, "[ngram_rows] cache: expected ids in [0, 16777216), got ", cached);
  Case one{2, 1, 100, 4};
  one.cache_rows = 1;
  fails(one, {1, 2}, 2, "[ngram_rows] cache: expected Tmax >= 2 after Tmax tokens, got 1");
  fails(one, {1, 2}, -1, "[ngram_rows] cache_length: expected at most 0 (Tmax - T), got -1");
  Runner first(one, {1, 2});
  first.step().cache_length = 1;
  std::fill(first.cache().begin(), first.cache().end(), 3.0f);
  first.forward();  // the token before the only cached one is before the sequence
}
