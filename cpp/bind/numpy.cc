#include "bind/numpy.h"

#define NPY_NO_DEPRECATED_API NPY_1_7_API_VERSION
#include <numpy/arrayobject.h>

#include "mudd/base/check.h"

namespace mudd::bind {
namespace {

// The C API table is filled on first use, in the current interpreter.
void need_numpy() {
  static const bool ready = [] {
    if (_import_array() < 0) throw py::error_already_set();
    return true;
  }();
  (void)ready;
}

int numpy_type(DType t) {
  switch (t) {
    case DType::f32: return NPY_FLOAT32;
    case DType::f64: return NPY_FLOAT64;
    case DType::i32: return NPY_INT32;
    case DType::u8: return NPY_UINT8;
    case DType::bf16: return NPY_UINT16;
    case DType::f16: return NPY_FLOAT16;
  }
  return NPY_FLOAT32;
}

PyArrayObject* array_of(const py::handle& object, const char* where, const char* name) {
  need_numpy();
  if (!PyArray_Check(object.ptr()))
    throw TypeMistake(std::string("[") + where + "] " + name + ": expected a numpy array, got " +
                      Py_TYPE(object.ptr())->tp_name);
  return reinterpret_cast<PyArrayObject*>(object.ptr());
}

void check_dtype(PyArrayObject* a, DType dtype, const char* where, const char* name) {
  if (PyArray_TYPE(a) == numpy_type(dtype) && PyArray_ISNOTSWAPPED(a)) return;
  const py::str got(py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(PyArray_DESCR(a))));
  throw TypeMistake(std::string("[") + where + "] " + name + ": expected " + name_of(dtype) + ", got " +
                    std::string(got));
}

// Return true if all axes but the last flatten to rows `stride` elements apart, and the last is contiguous. The
// stride of an axis of one entry does not matter.
bool flattens(PyArrayObject* a, int64_t item, int64_t* stride) {
  const int n = PyArray_NDIM(a);
  if (n == 0) return false;
  const npy_intp* shape = PyArray_DIMS(a);
  const npy_intp* strides = PyArray_STRIDES(a);
  if (shape[n - 1] > 1 && strides[n - 1] != item) return false;
  if (!PyArray_ISALIGNED(a)) return false;
  *stride = shape[n - 1];
  npy_intp next = -1;  // expected stride of the next outer axis
  for (int i = n - 2; i >= 0; --i) {
    if (shape[i] == 1) continue;
    if (next < 0) {
      if (strides[i] % item != 0 || strides[i] < 0) return false;
      *stride = strides[i] / item;
    } else if (strides[i] != next) {
      return false;
    }
    next = strides[i] * shape[i];
  }
  return true;
}

Tensor describe(PyArrayObject* a, DType dtype, int64_t stride) {
  const int n = PyArray_NDIM(a);
  const int64_t cols = n == 0 ? 1 : PyArray_DIM(a, n - 1);
  return {.data = PyArray_DATA(a),
          .rows = cols ? PyArray_SIZE(a) / cols : 0,
          .cols = cols,
          .stride = stride,
          .dtype = dtype};
}

}  // namespace

py::object view(void* data, const std::vector<int64_t>& shape, DType dtype, py::object owner, bool write) {
  need_numpy();
  std::vector<npy_intp> dims(shape.begin(), shape.end());
  PyObject* a = PyArray_New(&PyArray_Type, static_cast<int>(dims.size()), dims.data(), numpy_type(dtype), nullptr,
                            data, 0, NPY_ARRAY_C_CONTIGUOUS | (write ? NPY_ARRAY_WRITEABLE : 0), nullptr);
  if (!a) throw py::error_already_set();
  if (PyArray_SetBaseObject(reinterpret_cast<PyArrayObject*>(a), owner.release().ptr()) < 0) {
    Py_DECREF(a);
    throw py::error_already_set();
  }
  return py::reinterpret_steal<py::object>(a);
}

py::object empty(const std::vector<int64_t>& shape, DType dtype) {
  need_numpy();
  std::vector<npy_intp> dims(shape.begin(), shape.end());
  PyObject* a = PyArray_SimpleNew(static_cast<int>(dims.size()), dims.data(), numpy_type(dtype));
  if (!a) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(a);
}

Tensor tensor(const py::handle& object, DType dtype, const char* where, const char* name, py::object* holder,
              bool dense) {
  PyArrayObject* a = array_of(object, where, name);
  check_dtype(a, dtype, where, name);
  int64_t stride = 0;
  *holder = py::reinterpret_borrow<py::object>(object);
  if (!flattens(a, size_of(dtype), &stride) || (dense && !PyArray_IS_C_CONTIGUOUS(a))) {
    PyObject* copy = PyArray_NewCopy(a, NPY_CORDER);
    if (!copy) throw py::error_already_set();
    *holder = py::reinterpret_steal<py::object>(copy);
    a = reinterpret_cast<PyArrayObject*>(copy);
    stride = PyArray_NDIM(a) == 0 ? 1 : PyArray_DIM(a, PyArray_NDIM(a) - 1);
  }
  return describe(a, dtype, stride);
}

Tensor writable(const py::handle& object, DType dtype, const char* where, const char* name) {
  PyArrayObject* a = array_of(object, where, name);
  check_dtype(a, dtype, where, name);
  check(PyArray_ISWRITEABLE(a) && PyArray_IS_C_CONTIGUOUS(a), where, name,
        ": expected a writable C-contiguous array");
  return describe(a, dtype, PyArray_NDIM(a) == 0 ? 1 : PyArray_DIM(a, PyArray_NDIM(a) - 1));
}

std::vector<int64_t> shape_of(const py::handle& array, const char* where, const char* name) {
  PyArrayObject* a = array_of(array, where, name);
  return {PyArray_DIMS(a), PyArray_DIMS(a) + PyArray_NDIM(a)};
}

DType dtype_of(const py::handle& array, const char* where, const char* name) {
  PyArrayObject* a = array_of(array, where, name);
  for (DType t : {DType::f32, DType::i32, DType::f64, DType::u8})
    if (PyArray_TYPE(a) == numpy_type(t) && PyArray_ISNOTSWAPPED(a)) return t;
  const py::str got(py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(PyArray_DESCR(a))));
  throw TypeMistake(std::string("[") + where + "] " + name + ": expected float32, float64 or int32, got " +
                    std::string(got));
}

DType parse_dtype(const std::string& name) {
  for (DType t : {DType::f32, DType::bf16, DType::i32, DType::f64, DType::u8, DType::f16})
    if (name == name_of(t)) return t;
  fail("dtype", "expected float32, bfloat16, float16, int32, float64 or uint8, got '", name, "'");
}

}  // namespace mudd::bind
