#include "mudd/train/sampler.h"

#include "compare.h"
#include "mudd/base/check.h"

using namespace mudd;

TEST_CASE("greedy takes the first of the likeliest") {
  const float logits[] = {1.0f, 3.0f, 3.0f, -1.0f};
  CHECK(sample_token(logits, 4, 7, {.temperature = 0}) == 1);
}

TEST_CASE("frequencies follow the softmax, and top_k and top_p cut it") {
  const float logits[] = {0.0f, std::log(2.0f), std::log(4.0f), std::log(1.0f)};  // weights 1 2 4 1
  int counts[3][4] = {};
  for (int64_t position = 0; position < 8000; ++position) {
    ++counts[0][sample_token(logits, 4, position, {})];
    ++counts[1][sample_token(logits, 4, position, {.top_k = 2})];
    ++counts[2][sample_token(logits, 4, position, {.top_p = 0.5})];
  }
  for (int i = 0; i < 4; ++i)
    CHECK(counts[0][i] == doctest::Approx(1000.0 * (i == 1 ? 2 : i == 2 ? 4 : 1)).epsilon(0.1));
  CHECK(counts[1][0] + counts[1][3] == 0);
  CHECK(counts[1][2] == doctest::Approx(8000.0 * 2 / 3).epsilon(0.05));
  CHECK(counts[2][2] == 8000);
}

TEST_CASE("temperature sharpens, seeds differ, bad input is refused") {
  const float logits[] = {0.0f, 1.0f};
  int cold = 0, other = 0;
  for (int64_t p = 0; p < 1000; ++p) {
    cold += sample_token(logits, 2, p, {.temperature = 0.1}) == 1;
    other += sample_token(logits, 2, p, {.seed = 1}) != sample_token(logits, 2, p, {.seed = 2});
  }
  CHECK(cold > 990);
  CHECK(other > 200);
  const float bad[] = {0.0f, std::nanf("")};
  CHECK_THROWS_AS(sample_token(bad, 2, 0, {}), Error);
  CHECK_THROWS_AS(sample_token(logits, 2, 0, {.top_p = 0}), Error);
}

TEST_CASE("the likeliest token of rows of any length: the first of equals, and no NaN passes") {
  for (int64_t n : {1, 2, 15, 16, 17, 31, 32, 33, 70})
    for (int64_t at = 0; at < n; ++at) {
      std::vector<float> row(static_cast<size_t>(n), -2.0f);
      row[static_cast<size_t>(at)] = row[static_cast<size_t>(n - 1)] = -1.0f;
      CHECK(sample_token(row.data(), n, 0, {.temperature = 0}) == at);
      row[static_cast<size_t>(at)] = std::nanf("");
      CHECK_THROWS_AS(sample_token(row.data(), n, 0, {.temperature = 0}), Error);
    }
  const float low[] = {-INFINITY, -INFINITY};
  CHECK(sample_token(low, 2, 0, {.temperature = 0}) == 0);
}
