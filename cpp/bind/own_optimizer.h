// An optimizer that is a Python function of the user.
#pragma once

#include <pybind11/pybind11.h>

#include <string>
#include <vector>

namespace mudd::bind {

// Register an optimizer under this name. update(w, g, state, lr, **settings) changes w in place or returns the
// new weights; all are copies in float32. state: a dict with one or two moments by name, and step (from 1),
// decay (the fraction of w to subtract) and eps. settings: defaults by name, each a field of optim. whole: the
// function gets whole matrices of blocks, and adamw updates the rest; else it gets ranges of any length of any
// parameter.
void add_own_optimizer(const std::string& name, pybind11::object update, std::vector<std::string> moments,
                       const pybind11::dict& settings, bool whole);

}  // namespace mudd::bind
