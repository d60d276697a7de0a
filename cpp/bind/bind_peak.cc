// The measured limits of this CPU.
#include <pybind11/pybind11.h>

#include "mudd/kernels/peak/peak.h"

namespace py = pybind11;

void bind_peak(py::module_& m) {
  m.def("peak_gflops", &mudd::peak_gflops, py::arg("threads"), py::arg("tries") = 20,
        py::call_guard<py::gil_scoped_release>(),
        "GFLOP/s of fp32 multiply-adds in registers at the active level, measured with `threads` threads (2 ms a "
        "try).");
  m.def("bf16_peak_gflops", &mudd::bf16_peak_gflops, py::arg("threads"), py::arg("tries") = 20,
        py::call_guard<py::gil_scoped_release>(),
        "The same for bf16 operands and fp32 sums, with the bf16 instructions of the active level.");
  m.def("read_gbps", &mudd::read_gbps, py::arg("threads"), py::call_guard<py::gil_scoped_release>(),
        "GB/s that `threads` threads read from memory, measured (512 MiB are touched for a moment).");
}
