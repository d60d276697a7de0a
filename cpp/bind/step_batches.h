// The batches of a step from Python: a batch source, or arrays.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <optional>
#include <utility>

#include "bind/batcher.h"
#include "mudd/train/step.h"

namespace mudd::bind {

using Limits = std::optional<std::pair<double, double>>;  // of loss and gradient norm

// Fill the inputs of a graph run from global sample `first`.
void fill_from(PySource& batcher, Executor& e, int64_t first);

// Take a step on the samples of a batch source. Error if the graph has other inputs than the source.
StepReport run_batcher(TrainStep& s, PySource& batcher, int64_t step, int64_t updates, double lr,
                       const Limits& limits, uint32_t flags, double average);

// Take a step on arrays by the names of the graph's inputs, [batch_size, T] or [batch_size, T, K]. Error if their
// names or shapes differ from the graph's.
StepReport run_arrays(TrainStep& s, const pybind11::dict& arrays, int64_t step, int64_t updates, double lr,
                      int64_t batch_size, const Limits& limits, uint32_t flags, double average);

}  // namespace mudd::bind
