// Units: the smallest parts of a parameter that processes can own (docs/contracts.md, 25). Of a matrix the
// fewest rows, a multiple of 64, whose element count is a multiple of 4,096; of a vector 4,096 elements. So
// blocks of the norm, panels of every level and pages have one owner each, and the borders depend on neither
// the process count nor the instruction set.
#pragma once

#include <cstdint>

#include "mudd/params/parameter.h"

namespace mudd {

constexpr int64_t kUnitElements = 4096;
constexpr int64_t kUnitRows = 64;

// Return the end of the unit that contains element `at`; the last unit ends with the parameter. Each matrix of a
// stack is split separately if it has whole blocks. whole_matrices: never split a matrix.
int64_t next_border(const Parameter& parameter, int64_t at, bool whole_matrices);

}  // namespace mudd
