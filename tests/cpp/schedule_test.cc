#include "mudd/train/schedule.h"

#include <cmath>

#include "compare.h"
#include "mudd/base/check.h"

using namespace mudd;

TEST_CASE("warm-up rises by equal parts and ends at the peak") {
  for (auto kind : {ScheduleKind::constant, ScheduleKind::cosine, ScheduleKind::linear, ScheduleKind::wsd}) {
    const Schedule s{kind, 2.0, 0.1, 100, 10, 20};
    CHECK(learning_rate(s, 0) == doctest::Approx(0.2));
    CHECK(learning_rate(s, 9) == 2.0);
    CHECK(learning_rate(s, 10) == 2.0);
  }
}

TEST_CASE("middle and end of each schedule") {
  const auto at = [](ScheduleKind kind, int64_t t) { return learning_rate({kind, 2.0, 0.1, 110, 10, 20}, t); };
  CHECK(at(ScheduleKind::constant, 109) == 2.0);
  CHECK(at(ScheduleKind::cosine, 60) == doctest::Approx(2.0 * 0.55));
  CHECK(at(ScheduleKind::cosine, 35) == doctest::Approx(2.0 * (0.1 + 0.9 * 0.5 * (1 + std::sqrt(0.5)))));
  CHECK(at(ScheduleKind::linear, 60) == doctest::Approx(2.0 * 0.55));
  CHECK(at(ScheduleKind::wsd, 90) == 2.0);
  CHECK(at(ScheduleKind::wsd, 100) == doctest::Approx(2.0 * 0.55));
  for (auto kind : {ScheduleKind::cosine, ScheduleKind::linear, ScheduleKind::wsd}) {
    CHECK(at(kind, 109) > at(kind, 110));
    CHECK(at(kind, 110) == doctest::Approx(0.2));
    CHECK(at(kind, 1000) == at(kind, 110));
    for (int64_t t = 10; t < 109; ++t) CHECK(at(kind, t + 1) <= at(kind, t));
  }
}

TEST_CASE("without warm-up linear is peak * (1 - t / N)") {
  for (int64_t t = 0; t < 8; ++t) {
    const double lr = learning_rate({ScheduleKind::linear, 3.0, 0, 8, 0, 0}, t);
    CHECK(lr == 3.0 * (1 - static_cast<double>(t) / 8));
  }
}

TEST_CASE("edges: one step, warm-up longer than the run, decay of a tenth by default") {
  CHECK(learning_rate({ScheduleKind::cosine, 2.0, 0, 1, 0, 0}, 0) == 2.0);
  CHECK(learning_rate({ScheduleKind::cosine, 2.0, 0, 10, 100, 0}, 9) == doctest::Approx(0.2));
  CHECK(learning_rate({ScheduleKind::wsd, 2.0, 0, 100, 0, 0}, 89) == 2.0);
  CHECK(learning_rate({ScheduleKind::wsd, 2.0, 0, 100, 0, 0}, 95) == doctest::Approx(1.0));
  CHECK_THROWS_AS(learning_rate({ScheduleKind::wsd, 2.0, 0, 100, 0, 0}, -1), Error);
  CHECK_THROWS_AS(learning_rate({ScheduleKind::wsd, 2.0, 0, 0, 0, 0}, 1), Error);
  CHECK_THROWS_AS(parse_schedule("cosin"), Error);
}

TEST_CASE("the Mixtral benchmark's cosine: (t + 1) / (W + 1), then down from t = W") {
  constexpr int64_t W = 7, N = 30;
  const double peak = 2e-5, low = 2e-6;
  for (int64_t t = 0; t < N; ++t) {
    const double p = static_cast<double>(t - W) / (N - W);
    const double want =
        t <= W ? peak * (t + 1) / (W + 1) : low + (peak - low) * 0.5 * (1 + std::cos(3.14159265358979 * p));
    CHECK(learning_rate({ScheduleKind::cosine, peak, 0.1, N, W, 0, Warmup::between}, t) ==
          doctest::Approx(want).epsilon(1e-12));
  }
}

TEST_CASE("warm-up of the seeds: from zero, and from the final rate as mu-Transformer's") {
  Schedule s{ScheduleKind::linear, 2.0, 1e-4, 10, 4, 0, Warmup::zero};
  CHECK(learning_rate(s, 0) == 0);
  CHECK(learning_rate(s, 3) == doctest::Approx(1.5));
  s.warmup = Warmup::floor;
  CHECK(learning_rate(s, 0) == doctest::Approx(2e-4));
  CHECK(learning_rate(s, 2) == doctest::Approx(2 * (1e-4 + (1 - 1e-4) * 0.5)));
  CHECK(learning_rate(s, 4) == doctest::Approx(2.0));
  CHECK(learning_rate(s, 7) == doctest::Approx(2 * (1 + (1e-4 - 1) * 0.5)));
  CHECK(learning_rate(s, 10) == doctest::Approx(2e-4));
  CHECK(parse_warmup("floor") == Warmup::floor);
  CHECK(parse_warmup("between") == Warmup::between);
  CHECK_THROWS_AS(parse_warmup("flor"), Error);
}

TEST_CASE("inverse_sqrt falls from the peak with the timescale, which is the warm-up by default") {
  for (const int64_t t : {10, 11, 39, 40, 1000}) {
    const Schedule by_warmup{ScheduleKind::inverse_sqrt, 2.0, 0.1, 100, 10, 0};
    CHECK(learning_rate(by_warmup, t) ==
          doctest::Approx(2.0 * std::sqrt(10.0 / static_cast<double>(t))).epsilon(1e-15));
    const Schedule given{ScheduleKind::inverse_sqrt, 2.0, 0.1, 100, 10, 50};
    CHECK(learning_rate(given, t) ==
          doctest::Approx(2.0 * std::sqrt(50.0 / (40.0 + static_cast<double>(t)))).epsilon(1e-15));
  }
  const Schedule bare{ScheduleKind::inverse_sqrt, 2.0, 0.1, 100, 0, 0};
  CHECK(learning_rate(bare, 0) == 2.0);
  CHECK(learning_rate(bare, 30'000) == 1.0);
}

TEST_CASE("phases follow one another, each from its first factor to just before its last") {
  Schedule s{ScheduleKind::phases, 2.0, 0, 1};
  s.phases = {{PhaseKind::linear, 10, 0, 1},
              {PhaseKind::constant, 20, 1, 1},
              {PhaseKind::cosine, 10, 1, 0.5},
              {PhaseKind::inverse_sqrt, 9, 0.5, 0.25},
              {PhaseKind::sqrt, 4, 0.25, 0}};
  const auto at = [&](int64_t t) { return learning_rate(s, t) / 2; };
  CHECK(at(0) == 0);
  CHECK(at(5) == 0.5);
  CHECK(at(10) == 1);
  CHECK(at(29) == 1);
  CHECK(at(30) == 1);
  CHECK(at(35) == doctest::Approx(0.75).epsilon(1e-15));
  CHECK(at(40) == 0.5);
  CHECK(at(43) == doctest::Approx(0.5 / std::sqrt(2.0)).epsilon(1e-15));
  CHECK(at(49) == 0.25);
  CHECK(at(50) == 0.125);
  CHECK(at(53) == 0);
  CHECK(at(1000) == 0);
  CHECK(parse_phase("sqrt") == PhaseKind::sqrt);
  CHECK_THROWS_AS(parse_phase("root"), Error);
  s.phases[0].steps = 0;
  CHECK_THROWS_AS(at(3), Error);
  s.phases = {{PhaseKind::inverse_sqrt, 9, 0.5, 0}};
  CHECK_THROWS_AS(at(3), Error);
  s.phases.clear();
  CHECK_THROWS_AS(at(3), Error);
}
