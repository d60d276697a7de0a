// Options of an op: a Python dict of bool, int, float and str.
#pragma once

#include <pybind11/pybind11.h>

#include "mudd/base/check.h"
#include "mudd/graph/node.h"

namespace mudd::bind {

// An int, or an object with __index__ (NumPy's integers).
inline int64_t integer(const std::string& op, const std::string& name, const pybind11::handle& value) {
  const auto number = pybind11::reinterpret_steal<pybind11::object>(PyNumber_Index(value.ptr()));
  if (!number) {
    PyErr_Clear();
    throw TypeMistake("[" + op + "] " + name + ": expected bool, int, float or str");
  }
  int overflow = 0;
  const int64_t v = PyLong_AsLongLongAndOverflow(number.ptr(), &overflow);
  check(overflow == 0, op.c_str(), name, ": expected an int of 64 bits, got ",
        std::string(pybind11::str(number)).substr(0, 40));
  return v;
}

inline std::string text(const std::string& op, const std::string& name, const pybind11::handle& value) {
  Py_ssize_t size = 0;
  const char* utf8 = PyUnicode_AsUTF8AndSize(value.ptr(), &size);
  if (!utf8) PyErr_Clear();
  check(utf8 != nullptr, op.c_str(), name, ": expected text that UTF-8 can encode, got an unpaired surrogate");
  return {utf8, static_cast<size_t>(size)};
}

inline Attributes attributes(const std::string& op, const pybind11::dict& options) {
  namespace py = pybind11;
  Attributes a;
  for (const auto& [key, value] : options) {
    const std::string name = py::cast<std::string>(key);
    if (value.is_none()) continue;
    if (py::isinstance<py::bool_>(value)) a.values[name] = py::cast<bool>(value);
    else if (PyIndex_Check(value.ptr())) a.values[name] = integer(op, name, value);
    else if (py::isinstance<py::float_>(value)) a.values[name] = py::cast<double>(value);
    else if (py::isinstance<py::str>(value)) a.values[name] = text(op, name, value);
    else throw TypeMistake("[" + op + "] " + name + ": expected bool, int, float or str");
  }
  return a;
}

}  // namespace mudd::bind
