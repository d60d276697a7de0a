// Rounding of sizes. Not for files of one instruction set, which share no inline functions.
#pragma once

#include <cstdint>

namespace mudd {

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
constexpr int64_t round_up(int64_t a, int64_t to) { return ceil_div(a, to) * to; }

}  // namespace mudd
