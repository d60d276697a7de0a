// Array conversion with NumPy's C API: views that share memory and keep their owner alive. numpy.cc is the only
// file with the NumPy headers; everything else includes this one.
#pragma once

#include <pybind11/pybind11.h>

#include <string>
#include <vector>

#include "mudd/base/types.h"

namespace mudd::bind {

namespace py = pybind11;

// Return a view of memory that `owner` keeps alive. Read-only unless `writable`. bfloat16 is viewed as uint16.
py::object view(void* data, const std::vector<int64_t>& shape, DType dtype, py::object owner, bool writable);
// Return a new array (of any alignment: kernels do not require 64 bytes).
py::object empty(const std::vector<int64_t>& shape, DType dtype);

// Return the array `object` as a Tensor: rows of the last axis, which must be contiguous; all other axes must
// flatten to one stride, else a contiguous copy is made. `holder` receives the array to keep alive. dense: copy
// also if rows have gaps between them. Wrong dtype: TypeError with `where` and `name`. float64 is rejected for
// f32 unless it is a scalar array.
Tensor tensor(const py::handle& object, DType dtype, const char* where, const char* name, py::object* holder,
              bool dense = false);
// The same, for memory that will be written: no copies, must be writable and C-contiguous.
Tensor writable(const py::handle& object, DType dtype, const char* where, const char* name);
std::vector<int64_t> shape_of(const py::handle& array, const char* where = "array", const char* name = "value");
DType dtype_of(const py::handle& array, const char* where, const char* name);
DType parse_dtype(const std::string& name);  // "float32" ...

}  // namespace mudd::bind
