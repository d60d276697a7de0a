// The module _core.testing of the testing build: faults that tests plant.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <memory>
#include <string>
#include <utility>

#include "bind/class.h"
#include "mudd/dist/comm_threads.h"
#include "testing/fault_files.h"
#include "testing/flip.h"
#include "testing/late_transport.h"

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

void bind_testing(py::module_& core) {
  py::module_ m = core.def_submodule("testing", "Faults that tests plant; not in the product.");
  mudd::bind::Class<FaultFiles>(m, "FaultFiles", "Records file calls and fails, stops or shortens the n-th one.")
      .def(py::init([] { return std::make_unique<FaultFiles>(mudd::io::posix_files()); }))
      .def("fail_at", &FaultFiles::fail_at, py::arg("nth"), py::arg("code"))
      .def("stop_at", &FaultFiles::stop_at, py::arg("nth"))
      .def("shorten_at", &FaultFiles::shorten_at, py::arg("nth"))
      .def("refuse_exchange", &FaultFiles::refuse_exchange)
      .def("hold_writes", &FaultFiles::hold_writes, py::arg("hold"))
      .def("shrink_free_space", &FaultFiles::shrink_free_space, py::arg("bytes"))
      .def_property_readonly("count", &FaultFiles::count)
      .def_property_readonly("points", &FaultFiles::points)
      .def_property_readonly("log", &log_of,
                             "(call, path, to, data, offset) of each call that changed something.");
  mudd::bind::Class<mudd::Flip, mudd::NodeObserver, std::shared_ptr<mudd::Flip>>(
      m, "Flip", "Flips the last bit of an element of one value of a step, and shows all values to `inner`.")
      .def(py::init([](std::shared_ptr<mudd::NodeObserver> inner, const std::string& stage, int run,
                       const std::string& place, const std::string& value, int64_t element) {
             return std::make_shared<mudd::Flip>(std::move(inner), mudd::parse_stage(stage), run, place, value,
                                                 element);
           }),
           py::arg("inner"), py::arg("stage"), py::arg("run"), py::arg("place"), py::arg("value"),
           py::arg("element") = 0)
      .def_property_readonly("flipped", &mudd::Flip::flipped, "How many values it has changed.");
  // The caller keeps the object alive until it has set None again.
  m.def(
      "use_files", [](FaultFiles* faults) { mudd::io::set_files(faults); }, py::arg("faults").none(true),
      "All later file calls go through `faults`; None restores the system's.");
  m.def(
      "late_thread_ranks",
      [](int world, int node_size, int64_t chunk_bytes, double seconds) {
        mudd::dist::CommOptions options;
        options.chunk_bytes = chunk_bytes;
        options.wrap = [seconds](auto transport) { return mudd::dist::make_late(std::move(transport), seconds); };
        return mudd::dist::thread_ranks(world, node_size, options);
      },
      py::arg("world"), py::arg("node_size"), py::arg("chunk_bytes"), py::arg("seconds"),
      "Ranks as threads, whose messages are late and whose memory is NaN until then.");
}
