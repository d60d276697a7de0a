#include "mudd/train/schedule.h"

#include <algorithm>

#include "mudd/base/check.h"
#include "mudd/base/math.h"
#include "mudd/base/name_table.h"

namespace mudd {
namespace {

constexpr const char* kSchedules[] = {"constant", "cosine", "linear", "wsd"};
constexpr const char* kWarmups[] = {"next", "zero", "floor", "between"};

// Return the progress of t from begin to end, in [0, 1].
double share(int64_t t, int64_t begin, int64_t end) {
  if (end <= begin) return 1;
  return std::min(1.0, static_cast<double>(t - begin) / static_cast<double>(end - begin));
}

}  // namespace

std::span<const char* const> schedule_names() { return kSchedules; }
std::span<const char* const> warmup_names() { return kWarmups; }

ScheduleKind parse_schedule(const std::string& name) {
  return static_cast<ScheduleKind>(position_of(kSchedules, name, "schedule", "name"));
}

Warmup parse_warmup(const std::string& name) {
  return static_cast<Warmup>(position_of(kWarmups, name, "schedule", "warmup"));
}

double learning_rate(const Schedule& s, int64_t t) {
  check(t >= 0, "schedule", "t: expected at least 0, got ", t);
  check(s.steps >= 1, "schedule", "steps: expected at least 1, got ", s.steps);
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
