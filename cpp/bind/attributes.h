// Options of an op: a Python dict of bool, int, float and str.
#pragma once

#include <pybind11/pybind11.h>

#include "mudd/base/check.h"
#include "mudd/graph/node.h"

namespace mudd::bind {

inline Attributes attributes(const std::string& op, const pybind11::dict& options) {
  namespace py = pybind11;
  Attributes a;
  a.op = op;
  for (const auto& [key, value] : options) {
    const std::string name = py::cast<std::string>(key);
    if (value.is_none()) continue;
    if (py::isinstance<py::bool_>(value)) a.values[name] = py::cast<bool>(value);
    else if (py::isinstance<py::int_>(value)) a.values[name] = py::cast<int64_t>(value);
    else if (py::isinstance<py::float_>(value)) a.values[name] = py::cast<double>(value);
    else if (py::isinstance<py::str>(value)) a.values[name] = py::cast<std::string>(value);
    else throw TypeMistake("[" + op + "] " + name + ": expected bool, int, float or str");
  }
  return a;
}

}  // namespace mudd::bind
