// Times updates of the touched rows of a table, and prints one JSON object of medians in seconds per step:
//   build/run/bench/row_update [rows [width [lookups [rounds [threads]]]]]
// A step draws `lookups` row ids, counts each row once, and updates these rows from the rows of a gradient.
// The result "adam" updates w, m and v of a touched row. The result "one_number" updates w and one second moment
// for each row, and applies the weight decay of all steps since the last update. The result "dense" is the update
// of all rows by the core's AdamW.
// The ids are uniform over the rows, so that a large table misses the caches and the TLB as often as possible.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "mudd/base/parallel.h"
#include "mudd/base/rng.h"
#include "mudd/base/steady_seconds.h"
#include "mudd/optim/optimizer_spec.h"
#include "mudd/optim/update.h"

namespace mudd::bench {
namespace {

constexpr float kBeta1 = 0.9f, kBeta2 = 0.95f, kEps = 1e-8f, kRate = 1e-3f, kDecay = 1e-4f;
constexpr int64_t kRowsPerTask = 64;

struct Table {
  int64_t width;
  std::vector<float> w, m, v;
  std::vector<float> one;          // one second moment for each row
  std::vector<int32_t> last_step;  // of a row's update
};

// Return `count` draws below `rows`, sorted, each id once.
std::vector<int32_t> touched_rows(int64_t rows, int64_t count, uint32_t step) {
  std::vector<int32_t> ids(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t word = philox({step, 0, 0, static_cast<uint32_t>(i)}, philox_key(1, "row_update"))[0];
    ids[static_cast<size_t>(i)] = static_cast<int32_t>(uint64_t{word} * static_cast<uint64_t>(rows) >> 32);
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

void for_rows(const std::vector<int32_t>& ids, const std::function<void(int64_t place, int64_t row)>& update) {
  const auto count = static_cast<int64_t>(ids.size());
  parallel_for((count + kRowsPerTask - 1) / kRowsPerTask, [&](int64_t task, int) {
    for (int64_t i = task * kRowsPerTask; i < std::min(count, (task + 1) * kRowsPerTask); ++i)
      update(i, ids[static_cast<size_t>(i)]);
  });
}

void update_adam(Table& t, const std::vector<int32_t>& ids, const float* gradient) {
  for_rows(ids, [&](int64_t place, int64_t row) {
    float *w = &t.w[row * t.width], *m = &t.m[row * t.width], *v = &t.v[row * t.width];
    const float* g = gradient + place * t.width;
    for (int64_t d = 0; d < t.width; ++d) {
      m[d] = kBeta1 * m[d] + (1 - kBeta1) * g[d];
      v[d] = kBeta2 * v[d] + (1 - kBeta2) * g[d] * g[d];
      w[d] -= kDecay * w[d] + kRate * m[d] / (std::sqrt(v[d]) + kEps);
    }
  });
}

void update_one_number(Table& t, const std::vector<int32_t>& ids, const float* gradient, int32_t step) {
  for_rows(ids, [&](int64_t place, int64_t row) {
    float* w = &t.w[row * t.width];
    const float* g = gradient + place * t.width;
    float squares = 0;
    for (int64_t d = 0; d < t.width; ++d) squares += g[d] * g[d];
    float& one = t.one[static_cast<size_t>(row)];
    int32_t& last = t.last_step[static_cast<size_t>(row)];
    one = kBeta2 * one + (1 - kBeta2) * squares / static_cast<float>(t.width);
    const float kept = std::pow(1 - kDecay, static_cast<float>(step - last));
    const float rate = kRate / (std::sqrt(one) + kEps);
    last = step;
    for (int64_t d = 0; d < t.width; ++d) w[d] = kept * w[d] - rate * g[d];
  });
}

void update_dense(Table& t, const std::vector<float>& gradient) {
  const OptimizerSpec* adamw = nullptr;
  for (const OptimizerSpec* spec : optimizer_specs())
    if (std::string(spec->name) == "adamw") adamw = spec;
  const auto optimizer = adamw->make(OptimizerSettings(*adamw));
  UpdateParameter parameter;
  parameter.lr = kRate, parameter.decay = kDecay;
  const UpdateFactors factors = static_cast<const Elementwise&>(*optimizer).factors(parameter, 1, 1);
  const UpdateKernels& kernels = choose(adamw->rows);
  constexpr int64_t kPiece = 1 << 15;
  const auto n = static_cast<int64_t>(t.w.size());
  parallel_for((n + kPiece - 1) / kPiece, [&](int64_t task, int) {
    const int64_t first = task * kPiece, count = std::min(kPiece, n - first);
    const float* grads[] = {gradient.data() + first};
    kernels.update(count, &t.w[first], &t.m[first], &t.v[first], grads, 1, factors);
  });
}

double seconds_of(const std::function<void()>& body) {
  const double start = steady_seconds();
  body();
  return steady_seconds() - start;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace
}  // namespace mudd::bench

int main(int argc, char** argv) {
  using namespace mudd;
  using namespace mudd::bench;
  const auto given = [&](int i, int64_t fallback) { return argc > i ? std::atoll(argv[i]) : fallback; };
  const int64_t rows = given(1, 1 << 16), width = given(2, 64), lookups = given(3, 1024), rounds = given(4, 30);
  if (rows < 1 || width < 1 || lookups < 1 || rounds < 1 || rows > INT32_MAX) {
    std::fprintf(stderr, "row_update: expected positive numbers: [rows [width [lookups [rounds [threads]]]]]\n");
    return 2;
  }
  set_num_threads(static_cast<int>(given(5, 2)));
  const auto n = static_cast<size_t>(rows * width);
  Table t{width,
          std::vector<float>(n, 0.01f),
          std::vector<float>(n),
          std::vector<float>(n),
          std::vector<float>(static_cast<size_t>(rows)),
          std::vector<int32_t>(static_cast<size_t>(rows))};
  const std::vector<float> gradient(static_cast<size_t>(lookups * width), 0.5f), dense(n, 0.5f);
  std::vector<double> adam, one, whole;
  int64_t touched = 0;
  for (int32_t step = 1; step <= rounds; ++step) {
    const auto ids = touched_rows(rows, lookups, static_cast<uint32_t>(step));
    touched += static_cast<int64_t>(ids.size());
    adam.push_back(seconds_of([&] { update_adam(t, ids, gradient.data()); }));
    const auto others = touched_rows(rows, lookups, static_cast<uint32_t>(step + rounds));
    one.push_back(seconds_of([&] { update_one_number(t, others, gradient.data(), step); }));
    whole.push_back(seconds_of([&] { update_dense(t, dense); }));  // also evicts the rows from the caches
  }
  std::printf(
      "{\"rows\": %lld, \"width\": %lld, \"lookups\": %lld, \"touched\": %.1f, \"threads\": %d, "
      "\"adam\": %.9f, \"one_number\": %.9f, \"dense\": %.9f}\n",
      static_cast<long long>(rows), static_cast<long long>(width), static_cast<long long>(lookups),
      static_cast<double>(touched) / static_cast<double>(rounds), num_threads(), median(adam), median(one),
      median(whole));
  return 0;
}
