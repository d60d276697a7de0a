// _h5: HDF5 files for token caches and exports. A separate module, so that the core links no HDF5 and a process
// without a cache loads none. Python must load it with local scope (its default): see docs/data.md, 2.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/typing.h>

#include <array>
#include <utility>

#include "bind/class.h"
#include "mudd/base/check.h"
#include "mudd/h5/h5_file.h"

namespace py = pybind11;

namespace {

using mudd::h5::DatasetFile;
using mudd::h5::DatasetPlace;
using mudd::h5::Element;

constexpr std::array<std::pair<Element, const char*>, 8> kNames = {{{Element::u8, "uint8"},
                                                                    {Element::u16, "uint16"},
                                                                    {Element::u32, "uint32"},
                                                                    {Element::u64, "uint64"},
                                                                    {Element::i32, "int32"},
                                                                    {Element::i64, "int64"},
                                                                    {Element::f32, "float32"},
                                                                    {Element::f64, "float64"}}};

const char* name_of(Element type) { return kNames[static_cast<size_t>(type)].second; }

Element element_of(const py::dtype& dtype) {
  for (const auto& [type, name] : kNames) {
    if (dtype.is(py::dtype(name)) || dtype.equal(py::dtype(name))) return type;
  }
  throw mudd::TypeMistake(
      "[h5] dtype: expected uint8, uint16, uint32, uint64, int32, int64, float32 or float64, got " +
      std::string(py::str(dtype)));
}

void translate(std::exception_ptr raised) {
  try {
    if (raised) std::rethrow_exception(raised);
  } catch (const mudd::FormatError& e) {
    const py::object type = py::module_::import("mudd_core.base.errors").attr("FormatError");
    PyErr_SetObject(type.ptr(), type(e.file(), e.offset(), e.reason()).ptr());
  } catch (const mudd::h5::WriteError& e) {
    PyErr_SetString(PyExc_OSError, e.what());
  } catch (const mudd::TypeMistake& e) {
    PyErr_SetString(PyExc_TypeError, e.what());
  } catch (const mudd::StateError& e) {
    PyErr_SetString(PyExc_RuntimeError, e.what());
  }
}

void write_array(DatasetFile& file, const std::string& name, const py::array& data, int64_t first) {
  mudd::check(data.ndim() == 1 && (data.flags() & py::array::c_style) != 0, "h5",
              "data: expected a contiguous array of one dimension");
  file.write(name, element_of(data.dtype()), first, data.size(), data.data());
}

py::array read_array(const DatasetFile& file, const std::string& name, int64_t first, int64_t count) {
  const DatasetPlace where = file.stored(name);  // checked before the allocation
  if (count < 0) count = where.count - first;
  mudd::check(first >= 0 && count >= 0 && first <= where.count - count, "h5", "dataset '", name,
              "': expected a range in [0, ", where.count, "), got ", count, " from ", first);
  py::array out(py::dtype(name_of(where.type)), std::vector<py::ssize_t>{count});
  file.read(name, where.type, first, count, out.mutable_data());
  return out;
}

py::str read_text(const DatasetFile& file, const std::string& name) {
  const std::string text = file.text(name);
  PyObject* decoded = PyUnicode_DecodeUTF8(text.data(), static_cast<py::ssize_t>(text.size()), nullptr);
  if (decoded != nullptr) return py::reinterpret_steal<py::str>(decoded);
  PyErr_Clear();
  throw mudd::FormatError(file.path(), 0, "attribute '" + name + "' is not UTF-8");
}

py::typing::Tuple<py::int_, py::int_, py::str> as_tuple(const DatasetPlace& where) {
  return py::make_tuple(where.offset, where.count, name_of(where.type));
}

}  // namespace

PYBIND11_MODULE(_h5, m) {
  m.doc() = "HDF5 files: contiguous datasets, attributes, and the position of a dataset's bytes.";
  py::register_local_exception_translator(translate);
  mudd::bind::Class<DatasetFile>(m, "File",
                                 "One HDF5 file; format bounds v110..v110, no time stamps. One thread at a time.")
      .def_static("create", &DatasetFile::create, py::arg("path"), "A new file; ValueError if it exists.")
      .def_static("open", &DatasetFile::open, py::arg("path"),
                  "An existing file for reading; FormatError if damaged.")
      .def(
          "create_dataset",
          [](DatasetFile& file, const std::string& name, const py::object& dtype, int64_t count) {
            file.create_dataset(name, element_of(py::dtype::from_args(dtype)), count);
          },
          py::arg("name"), py::arg("dtype"), py::arg("count"), "A contiguous dataset of `count` elements.")
      .def("write", &write_array, py::arg("name"), py::arg("data"), py::arg("first") = 0,
           "Writes a one-dimensional array from element `first` on.")
      .def("read", &read_array, py::arg("name"), py::arg("first") = 0, py::arg("count") = -1,
           "Elements [first, first + count) as an array; count -1: to the end.")
      .def("has", &DatasetFile::has, py::arg("name"), "True if the file holds an object of that name.")
      .def(
          "place", [](const DatasetFile& f, const std::string& name) { return as_tuple(f.place(name)); },
          py::arg("name"), "(byte offset or -1, count, dtype) of a dataset.")
      .def("set_text", &DatasetFile::set_text, py::arg("name"), py::arg("value"))
      .def("set_number", &DatasetFile::set_number, py::arg("name"), py::arg("value"))
      .def("text", &read_text, py::arg("name"))
      .def("number", &DatasetFile::number, py::arg("name"))
      .def("close", &DatasetFile::close, "Writes what is buffered and closes.")
      .def("__enter__", [](py::object self) { return self; })
      .def("__exit__", [](DatasetFile& file, const py::args&) { file.close(); });
  m.def(
      "dataset_offset",
      [](const std::string& path, const std::string& dataset) {
        return as_tuple(mudd::h5::dataset_offset(path, dataset));
      },
      py::arg("path"), py::arg("dataset"),
      "(byte offset, count, dtype) of a contiguous dataset; FormatError if it is not contiguous.");
}
