// The learning rate of every update. In C++ and not in Python, because libm and NumPy choose code by CPU and a
// run must have the same bits on every machine (contracts 5, 8).
//
// t counts updates from 0, N = steps, W = warmup_steps, r = final_ratio:
//   t < W      next: peak * (t + 1) / W      zero: peak * t / W (MUDDFormer and TokenFormer)
//              between: peak * (t + 1) / (W + 1) (the Mixtral benchmark, which reaches its peak at t = W)
//              floor: peak * (r + (1 - r) * t / W) (mu-Transformer, which starts from r instead of 0)
//   constant   peak
//   cosine     peak * (r + (1 - r) * (1 + cos(pi p)) / 2),  p = (t - W) / (N - W)
//   linear     peak * (r + (1 - r) * (1 - p)),              p as above
//   wsd        peak until S = max(W, N - decay_steps), then linear with p = (t - S) / (N - S)
//   inverse_sqrt  peak * sqrt(S / (S + t - W)), S = decay_steps; 0: W, or 10,000 without a warm-up
//   phases     peak * the factor of the phase of t, see phase_factor; after the last one its final factor
// So p = 1, the final rate, is reached just after the last update. decay_steps = 0 means N / 10, at least 1, for
// wsd. inverse_sqrt is the one of Vaswani et al. 2017 if S = W; it has no final rate.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace mudd {

enum class ScheduleKind { constant, cosine, linear, wsd, inverse_sqrt, phases };
enum class Warmup { next, zero, floor, between };

enum class PhaseKind { constant, linear, cosine, inverse_sqrt, sqrt };

// A part of a schedule. from, to: factors of the peak at its first update and just after its last one.
struct SchedulePhase {
  PhaseKind kind = PhaseKind::constant;
  int64_t steps = 1;
  double from = 1, to = 1;
};

struct Schedule {
  ScheduleKind kind = ScheduleKind::constant;
  double peak = 0;
  double final_ratio = 0;
  int64_t steps = 1;
  int64_t warmup_steps = 0;
  int64_t decay_steps = 0;
  Warmup warmup = Warmup::next;
  std::vector<SchedulePhase> phases = {};
};

// Return all names, in the order of the enums.
std::span<const char* const> schedule_names();
std::span<const char* const> warmup_names();
std::span<const char* const> phase_names();
// Return the kind with this name; Error for any other name.
ScheduleKind parse_schedule(const std::string& name);
Warmup parse_warmup(const std::string& name);
PhaseKind parse_phase(const std::string& name);

// Return the factor of a phase at progress p in [0, 1]:
//   constant      from
//   linear        from + (to - from) p
//   cosine        to + (from - to) (1 + cos(pi p)) / 2
//   inverse_sqrt  from / sqrt(1 + p ((from / to)^2 - 1)), for from and to above 0
//   sqrt          from + (to - from) sqrt(p)  (the decay "1-sqrt" of Haegele et al. 2024)
double phase_factor(const SchedulePhase& phase, double p);

// Return the learning rate of update t. Error if t is negative or steps < 1; t >= steps keeps the final rate.
double learning_rate(const Schedule& schedule, int64_t t);

}  // namespace mudd
