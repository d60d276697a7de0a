// The time on the steady clock in seconds, for durations.
#pragma once

#include <chrono>

namespace mudd {

inline double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace mudd
