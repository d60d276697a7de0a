// An optimizer that is a function of the user's in Python.
#pragma once

#include <pybind11/pybind11.h>

#include <string>
#include <vector>

namespace mudd::bind {

// Makes an optimizer known under this name. update(w, g, state, lr, **settings) changes w in place or returns the
// new weights; all are copies in float32. state: a dict of the moments by their names, one or two, and the numbers
// step (from 1), decay (the fraction of w to take away) and eps. settings: defaults by name, each a field of
// optim. whole: it takes matrices of blocks, whole, and leaves the rest to adamw; else runs of any length of any
// parameter.
void add_own_optimizer(const std::string& name, pybind11::object update, std::vector<std::string> moments,
                       const pybind11::dict& settings, bool whole);

}  // namespace mudd::bind
