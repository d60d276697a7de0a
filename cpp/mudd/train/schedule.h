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
// So p = 1, the final rate, is reached just after the last update. decay_steps = 0 means N / 10, at least 1.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace mudd {

enum class ScheduleKind { constant, cosine, linear, wsd };
enum class Warmup { next, zero, floor, between };

struct Schedule {
  ScheduleKind kind = ScheduleKind::constant;
  double peak = 0;
  double final_ratio = 0;
  int64_t steps = 1;
  int64_t warmup_steps = 0;
  int64_t decay_steps = 0;
  Warmup warmup = Warmup::next;
};

// Return all names, in the order of the enums.
std::span<const char* const> schedule_names();
std::span<const char* const> warmup_names();
// Return the kind with this name; Error for any other name.
ScheduleKind parse_schedule(const std::string& name);
Warmup parse_warmup(const std::string& name);

// Return the learning rate of update t. Error if t is negative or steps < 1; t >= steps keeps the final rate.
double learning_rate(const Schedule& schedule, int64_t t);

}  // namespace mudd
