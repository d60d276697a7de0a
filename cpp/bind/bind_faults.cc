// File operations that tests put in the place of the system's.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <memory>

#include "bind/class.h"
#include "mudd/io/fault_files.h"

namespace py = pybind11;

namespace {

using mudd::io::FaultFiles;
using mudd::io::FileCall;

py::list log_of(const FaultFiles& faults) {
  py::list out;
  for (const FileCall& call : faults.log()) {
    out.append(py::make_tuple(call.call, call.path, call.to, py::bytes(call.data), call.offset));
  }
  return out;
}

}  // namespace

void bind_faults(py::module_& m) {
  mudd::bind::Class<FaultFiles>(m, "FaultFiles",
                                "For tests: records file calls and fails, stops or shortens the n-th one.")
      .def(py::init([] { return std::make_unique<FaultFiles>(mudd::io::posix_files()); }))
      .def("fail_at", &FaultFiles::fail_at, py::arg("nth"), py::arg("code"))
      .def("stop_at", &FaultFiles::stop_at, py::arg("nth"))
      .def("shorten_at", &FaultFiles::shorten_at, py::arg("nth"))
      .def("refuse_exchange", &FaultFiles::refuse_exchange)
      .def("shrink_free_space", &FaultFiles::shrink_free_space, py::arg("bytes"))
      .def_property_readonly("count", &FaultFiles::count)
      .def_property_readonly("points", &FaultFiles::points)
      .def_property_readonly("log", &log_of,
                             "(call, path, to, data, offset) of each call that changed something.");
  // The caller keeps the object alive until it has put None back.
  m.def(
      "use_files", [](FaultFiles* faults) { mudd::io::set_files(faults); }, py::arg("faults").none(true),
      "For tests: all later file calls go through `faults`; None restores the system's.");
}
