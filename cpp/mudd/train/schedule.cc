#include "mudd/train/schedule.h"

#include <algorithm>

#include "mudd/base/check.h"
#include "mudd/base/math.h"
#include "mudd/base/name_table.h"

namespace mudd {
namespace {

constexpr const char* kSchedules[] = {"constant", "cosine", "linear", "wsd", "inverse_sqrt", "phases"};
constexpr const char* kWarmups[] = {"next", "zero", "floor", "between"};
constexpr const char* kPhases[] = {"constant", "linear", "cosine", "inverse_sqrt", "sqrt"};
constexpr int64_t kTimescale = 10'000;  // of inverse_sqrt without a warm-up

// Return the progress of t from begin to end, in [0, 1].
double share(int64_t t, int64_t begin, int64_t end) {
  if (end <= begin) return 1;
  return std::min(1.0, static_cast<double>(t - begin) / static_cast<double>(end - begin));
}

double inverse_sqrt(const Schedule& s, int64_t t) {
  const int64_t given = s.decay_steps > 0 ? s.decay_steps : s.warmup_steps;
  const auto scale = static_cast<double>(given > 0 ? given : kTimescale);
  return math::sqrt(scale / (scale + static_cast<double>(t - s.warmup_steps)));
}

double phases_factor(const Schedule& s, int64_t t) {
  check(!s.phases.empty(), "schedule", "phases: expected at least one");
  int64_t begin = 0;
  for (const SchedulePhase& phase : s.phases) {
    check(phase.steps >= 1, "schedule", "phases: expected at least 1 step, got ", phase.steps);
    if (t - begin < phase.steps) return phase_factor(phase, share(t, begin, begin + phase.steps));
    begin += phase.steps;
  }
  return phase_factor(s.phases.back(), 1);
}

}  // namespace

std::span<const char* const> schedule_names() { return kSchedules; }
std::span<const char* const> warmup_names() { return kWarmups; }
std::span<const char* const> phase_names() { return kPhases; }

ScheduleKind parse_schedule(const std::string& name) {
  return static_cast<ScheduleKind>(position_of(kSchedules, name, "schedule", "name"));
}

Warmup parse_warmup(const std::string& name) {
  return static_cast<Warmup>(position_of(kWarmups, name, "schedule", "warmup"));
}

PhaseKind parse_phase(const std::string& name) {
  return static_cast<PhaseKind>(position_of(kPhases, name, "schedule", "phase"));
}

double phase_factor(const SchedulePhase& phase, double p) {
  const double from = phase.from, to = phase.to;
  switch (phase.kind) {
    case PhaseKind::constant: return from;
    case PhaseKind::linear: return from + (to - from) * p;
    case PhaseKind::cosine: return to + (from - to) * 0.5 * (1 + math::cos(math::kPi * p));
    case PhaseKind::inverse_sqrt: {
      check(from > 0 && to > 0, "schedule", "phases: expected inverse_sqrt from and to above 0, got ", from,
            " and ", to);
      const double ratio = from / to;
      return from / math::sqrt(1 + p * (ratio * ratio - 1));
    }
    case PhaseKind::sqrt: return from + (to - from) * math::sqrt(p);
  }
  fail("schedule", "phase: unknown");
}

double learning_rate(const Schedule& s, int64_t t) {
  check(t >= 0, "schedule", "t: expected at least 0, got ", t);
  check(s.steps >= 1, "schedule", "steps: expected at least 1, got ", s.steps);
  if (s.kind == ScheduleKind::phases) return s.peak * phases_factor(s, t);
  const double r = s.final_ratio;
  if (t < s.warmup_steps) {
    const double width = static_cast<double>(s.warmup_steps), at = static_cast<double>(t);
    if (s.warmup == Warmup::next) return s.peak * (at + 1) / width;
    if (s.warmup == Warmup::between) return s.peak * (at + 1) / (width + 1);
    return s.peak * (s.warmup == Warmup::zero ? at / width : r + (1 - r) * at / width);
  }
  switch (s.kind) {
    case ScheduleKind::constant: return s.peak;
    case ScheduleKind::cosine:
      return s.peak * (r + (1 - r) * 0.5 * (1 + math::cos(math::kPi * share(t, s.warmup_steps, s.steps))));
    case ScheduleKind::linear: return s.peak * (r + (1 - r) * (1 - share(t, s.warmup_steps, s.steps)));
    case ScheduleKind::inverse_sqrt: return s.peak * inverse_sqrt(s, t);
    case ScheduleKind::phases: break;
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
