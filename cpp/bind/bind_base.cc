// Process-wide settings: instruction-set level, threads.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <string>
#include <vector>

#include "mudd/base/check.h"
#include "mudd/base/fit.h"
#include "mudd/base/isa.h"
#include "mudd/base/parallel.h"
#include "mudd/base/room_error.h"
#include "mudd/base/test_build.h"

namespace py = pybind11;

namespace {

py::object class_of(const char* name) { return py::module_::import("mudd_core.base.errors").attr(name); }

// FormatError(file, offset, reason) is defined in mudd_core.base.errors, so that Python code raises the same
// class.
void translate(std::exception_ptr raised) {
  try {
    if (raised) std::rethrow_exception(raised);
  } catch (const mudd::FormatError& e) {
    const py::object type = class_of("FormatError");
    PyErr_SetObject(type.ptr(), type(e.file(), e.offset(), e.reason()).ptr());
  } catch (const mudd::TypeMistake& e) {
    PyErr_SetString(PyExc_TypeError, e.what());
  } catch (const mudd::RoomError& e) {
    PyErr_SetString(class_of("UserError").ptr(), e.what());
  } catch (const mudd::StateError& e) {
    PyErr_SetString(PyExc_RuntimeError, e.what());
  }
}

}  // namespace

void bind_base(py::module_& m) {
  py::register_exception_translator(translate);
  m.def(
      "isa", [] { return std::string(mudd::name_of(mudd::active_isa())); },
      "Instruction-set level the kernels are chosen for (capped by MUDD_MAX_ISA).");
  m.def(
      "check_levels",
      [] {
        if (const char* cap = std::getenv("MUDD_MAX_ISA"); cap != nullptr && *cap != '\0') mudd::parse_isa(cap);
        mudd::emulated_level();
        const char* kill_at = std::getenv("MUDD_KILL_AT");
        mudd::check(kill_at == nullptr || *kill_at == '\0' || mudd::testing::linked(), "checkpoint",
                    "MUDD_KILL_AT: only the testing build has kill points");
      },
      "ValueError for a MUDD_MAX_ISA or MUDD_EMULATE that is no level, and for variables of the testing build.");
  m.def(
      "detected_isa", [] { return std::string(mudd::name_of(mudd::detected_isa())); },
      "Instruction-set level of this CPU.");
  m.def(
      "isa_levels",
      [] {
        std::vector<std::string> levels;
        for (int i = 0; i <= static_cast<int>(mudd::kHighestIsa); ++i)
          levels.emplace_back(mudd::name_of(static_cast<mudd::Isa>(i)));
        return levels;
      },
      "All instruction-set levels, the lowest first.");
  m.def(
      "fp32_order", [] { return mudd::kFp32Order; },
      "Lanes that sums of fp32 numbers are made in, at every instruction-set level; other lanes give other bits.");
  m.def("cpu_name", &mudd::cpu_name, "Name of the CPU as it reports itself.");
  m.def("set_num_threads", &mudd::set_num_threads, py::arg("n"),
        "Set the thread count; 0 means the default (OMP_NUM_THREADS or the CPU mask).");
  m.def(
      "fit_line",
      [](const std::vector<double>& x, const std::vector<double>& y) {
        const mudd::Line line = mudd::fit_line(x, y);
        return py::make_tuple(line.slope, line.intercept, line.slope_error);
      },
      py::arg("x"), py::arg("y"), "(slope, intercept, standard error of the slope) of the least-squares line.");
  m.def("num_threads", &mudd::num_threads, "Threads that the next call will use.");
}
