// Arrays across the border, by NumPy's own C API: views that share memory and keep their owner alive.
// numpy.cc is the only file that sees the NumPy headers; everything else includes this one.
#pragma once

#include <pybind11/pybind11.h>

#include <string>
#include <vector>

#include "mudd/base/types.h"

namespace mudd::bind {

namespace py = pybind11;

// A view of memory that `owner` keeps alive. Read-only unless `writable`. bfloat16 comes as uint16 words.
py::object view(void* data, const std::vector<int64_t>& shape, DType dtype, py::object owner, bool writable);
// A new array of its own memory (64-byte aligned by NumPy's allocator or not: kernels do not care).
py::object empty(const std::vector<int64_t>& shape, DType dtype);

// The array behind `object` as a Tensor: rows of the last axis, which must be contiguous; all other axes must
// flatten to one stride, else a contiguous copy is made. `holder` receives the array to keep alive.
// dense: a copy also where rows have gaps between them.
// Wrong dtype: TypeError naming `where` and `name`. float64 input is refused for f32 unless it is a scalar array.
Tensor tensor(const py::handle& object, DType dtype, const char* where, const char* name, py::object* holder,
              bool dense = false);
// The same, for memory that will be written: no copies, must be writable and C-contiguous.
Tensor writable(const py::handle& object, DType dtype, const char* where, const char* name);
std::vector<int64_t> shape_of(const py::handle& array, const char* where = "array", const char* name = "value");
DType dtype_of(const py::handle& array, const char* where, const char* name);
DType parse_dtype(const std::string& name);  // "float32" ...

}  // namespace mudd::bind
