// Units: the smallest parts of a parameter that processes share out among themselves (docs/contracts.md, 25). Of a
// matrix the fewest rows, a multiple of 64, whose numbers are a multiple of 4,096; of a vector 4,096 numbers.
// Blocks of the norm, panels of every level and pages then have one owner each, and the borders depend neither on
// the number of processes nor on the instruction set.
#pragma once

#include <cstdint>

#include "mudd/params/parameter.h"

namespace mudd {

constexpr int64_t kUnitElements = 4096;
constexpr int64_t kUnitRows = 64;

// The first border behind element `at` of the parameter; its size ends the last unit. Each matrix of a
// stack is cut on its own if it has whole blocks. whole_matrices: never cut inside a matrix.
int64_t next_border(const Parameter& parameter, int64_t at, bool whole_matrices);

}  // namespace mudd
