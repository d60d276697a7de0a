#include "mudd/train/schedule.h"

#include <algorithm>

#include "mudd/base/check.h"

namespace mudd {
namespace {

constexpr double kPi = 3.14159265358979323846;

// Taylor series for |a| <= pi / 4; the first term left out is below 1e-17.
double cos_series(double a) {
  const double z = a * a;
  double sum = 1, term = 1;
  for (int k = 1; k <= 8; ++k) {
    term *= -z / ((2 * k - 1) * (2 * k));
    sum += term;
  }
  return sum;
}

double sin_series(double a) {
  const double z = a * a;
  double sum = a, term = a;
  for (int k = 1; k <= 8; ++k) {
    term *= -z / ((2 * k) * (2 * k + 1));
    sum += term;
  }
  return sum;
}

// How far t is on the way from begin to end, in [0, 1].
double share(int64_t t, int64_t begin, int64_t end) {
  if (end <= begin) return 1;
  return std::min(1.0, static_cast<double>(t - begin) / static_cast<double>(end - begin));
}

}  // namespace

ScheduleKind parse_schedule(const std::string& name) {
  if (name == "constant") return ScheduleKind::constant;
  if (name == "cosine") return ScheduleKind::cosine;
  if (name == "linear") return ScheduleKind::linear;
  if (name == "wsd") return ScheduleKind::wsd;
  fail("schedule", "name: expected constant, cosine, linear or wsd, got '", name, "'");
}

double cos_half_turns(double x) {
  if (x > 0.5) return -cos_half_turns(1 - x);
  return x <= 0.25 ? cos_series(kPi * x) : sin_series(kPi * (0.5 - x));
}

double learning_rate(const Schedule& s, int64_t t) {
  check(t >= 0, "schedule", "t: expected at least 0, got ", t);
  check(s.steps >= 1, "schedule", "steps: expected at least 1, got ", s.steps);
  if (t < s.warmup_steps) return s.peak * static_cast<double>(t + 1) / static_cast<double>(s.warmup_steps);
  const double r = s.final_ratio;
  switch (s.kind) {
    case ScheduleKind::constant: return s.peak;
    case ScheduleKind::cosine:
      return s.peak * (r + (1 - r) * 0.5 * (1 + cos_half_turns(share(t, s.warmup_steps, s.steps))));
    case ScheduleKind::linear: return s.peak * (r + (1 - r) * (1 - share(t, s.warmup_steps, s.steps)));
    case ScheduleKind::wsd: {
      const int64_t length = s.decay_steps > 0 ? s.decay_steps : std::max<int64_t>(1, s.steps / 10);
      const int64_t begin = std::max(s.warmup_steps, s.steps - length);
      if (t < begin) return s.peak;
      return s.peak * (r + (1 - r) * (1 - share(t, begin, s.steps)));
    }
  }
  fail("schedule", "kind: unknown");
}

}  // namespace mudd
