// Strings from Python. All files of the extension modules include this first (python.cmake).
#pragma once

#include <pybind11/cast.h>

namespace pybind11::detail {

// A str that UTF-8 cannot encode (half of a surrogate pair) is a ValueError, also inside a list or a dict;
// pybind11 would raise TypeError, or RuntimeError for an explicit cast.
template <>
struct type_caster<std::string> : string_caster<std::string> {
  bool load(handle source, bool convert) {
    if (source && PyUnicode_Check(source.ptr()) && !PyUnicode_AsUTF8AndSize(source.ptr(), nullptr)) {
      if (!PyErr_ExceptionMatches(PyExc_UnicodeEncodeError)) throw error_already_set();
      PyErr_Clear();
      throw value_error("[text] expected text that UTF-8 can encode, got an unpaired surrogate in " +
                        static_cast<std::string>(str(repr(source))).substr(0, 200));
    }
    return string_caster<std::string>::load(source, convert);
  }
};

}  // namespace pybind11::detail
