#include "mudd/train/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "mudd/base/check.h"
#include "mudd/base/math.h"
#include "mudd/base/rng.h"

namespace mudd {

namespace {

constexpr int64_t kLanes =
    16;  // sixteen chains: the compiler vectorizes them, and none waits for the previous addition

void check_numbers(const float* x, int64_t n) {
  int32_t bad[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int64_t j = 0; j < kLanes; ++j) bad[j] |= x[i + j] != x[i + j];
  bool any = std::any_of(bad, bad + kLanes, [](int32_t b) { return b != 0; });
  for (; i < n; ++i) any = any || std::isnan(x[i]);
  for (i = 0; any && i < n; ++i) check(!std::isnan(x[i]), "sample", "logits: token ", i, " is not a number");
}

float largest(const float* x, int64_t n) {
  float top[kLanes];
  std::fill_n(top, kLanes, x[0]);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int64_t j = 0; j < kLanes; ++j) top[j] = top[j] < x[i + j] ? x[i + j] : top[j];
  for (; i < n; ++i) top[0] = std::max(top[0], x[i]);
  return *std::max_element(top, top + kLanes);
}

// Return the first index of a value that occurs.
int64_t first_of(const float* x, int64_t n, float value) { return std::find(x, x + n, value) - x; }

}  // namespace

int64_t sample_token(const float* logits, int64_t n, int64_t position, const SampleOptions& options) {
  check(n >= 1, "sample", "logits: expected at least one");
  check(options.temperature >= 0 && options.top_k >= 0 && options.top_p > 0 && options.top_p <= 1, "sample",
        "expected temperature >= 0, top_k >= 0 and top_p in (0, 1]");
  check_numbers(logits, n);
  if (options.temperature == 0) return first_of(logits, n, largest(logits, n));

  std::vector<int64_t> order(n);
  std::iota(order.begin(), order.end(), 0);
  const int64_t kept = options.top_k > 0 ? std::min(options.top_k, n) : n;
  const auto likelier = [&](int64_t a, int64_t b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  };
  std::partial_sort(order.begin(), order.begin() + kept, order.end(), likelier);

  std::vector<double> weights(kept);
  double total = 0;
  for (int64_t i = 0; i < kept; ++i)
    total += weights[i] =
        math::exp((static_cast<double>(logits[order[i]]) - logits[order[0]]) / options.temperature);
  double nucleus = 0;  // weight of the tokens that stay
  int64_t last = 0;
  while (last < kept && (last == 0 || nucleus < options.top_p * total)) nucleus += weights[last++];

  const PhiloxBlock words = philox({0, static_cast<uint32_t>(position), 0, 0}, philox_key(options.seed, "sample"));
  double left = uniform_double(words[0]) * nucleus;
  for (int64_t i = 0; i < last; ++i) {
    left -= weights[i];
    if (left < 0) return order[i];
  }
  return order[last - 1];
}

}  // namespace mudd
