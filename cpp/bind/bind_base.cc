// Process-wide settings: instruction-set level, threads.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <map>
#include <string>
#include <vector>

#include "mudd/base/check.h"
#include "mudd/base/fit.h"
#include "mudd/base/isa.h"
#include "mudd/base/parallel.h"
#include "mudd/base/room_error.h"
#include "mudd/base/test_build.h"
#include "mudd/graph/op_spec.h"
#include "mudd/optim/optimizer_spec.h"

namespace py = pybind11;

namespace {

// An argument that is True, or False, and nothing else: overloads by it have a return type each.
template <bool kValue>
struct Exactly {};

}  // namespace

template <bool kValue>
struct pybind11::detail::type_caster<Exactly<kValue>> {
  PYBIND11_TYPE_CASTER(Exactly<kValue>, const_name<kValue>("typing.Literal[True]", "typing.Literal[False]"));
  bool load(handle given, bool) { return given.ptr() == (kValue ? Py_True : Py_False); }
};

namespace {

// The level of each kernel, by its name.
using Levels = std::map<std::string, std::string>;

// The kernels of each op and optimizer. An op may have none.
std::map<std::string, Levels> kernels_in_use() {
  std::map<std::string, Levels> found;
  const auto add = [&](const std::string& user, const std::vector<mudd::KernelName>& rows) {
    for (const mudd::KernelName& row : rows) found[user].emplace(row.name, row.level);
  };
  for (const mudd::OpSpec* op : mudd::op_specs()) {
    found[op->name];
    if (op->kernels) add(op->name, op->kernels());
  }
  for (const mudd::OptimizerSpec* optimizer : mudd::optimizer_specs()) {
    if (!optimizer->rows.empty()) add(optimizer->name, {mudd::chosen(optimizer->rows)});
    if (optimizer->kernels) add(optimizer->name, optimizer->kernels());
  }
  return found;
}

py::object class_of(const char* name) { return py::module_::import("mudd_core.base.errors").attr(name); }

// FormatError(file, offset, reason) lives in mudd_core.base.errors, so that Python code raises the same class.
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
  const auto level = [] { return std::string(mudd::name_of(mudd::active_isa())); };
  m.def("isa", level, "Instruction-set level the kernels are chosen for (capped by MUDD_MAX_ISA).");
  m.def(
      "isa", [level](Exactly<false>) { return level(); }, py::kw_only(), py::arg("detail"), "As without detail.");
  m.def(
      "isa", [](Exactly<true>) { return kernels_in_use(); }, py::kw_only(), py::arg("detail"),
      "Kernels of each op and optimizer, and the level of the row that runs on this CPU; conversions and sums, "
      "which all ops share, are left out.");
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
        for (int i = 0; i <= static_cast<int>(mudd::Isa::amx_bf16); ++i)
          levels.emplace_back(mudd::name_of(static_cast<mudd::Isa>(i)));
        return levels;
      },
      "All instruction-set levels, the lowest first.");
  m.def(
      "fp32_order", [] { return mudd::kFp32Order; },
      "Lanes that sums of fp32 numbers are made in, at every instruction-set level; other lanes give other bits.");
  m.def("cpu_name", &mudd::cpu_name, "Name of the CPU as it reports itself.");
  m.def("set_num_threads", &mudd::set_num_threads, py::arg("n"),
        "Threads used from now on; 0 asks for the default (OMP_NUM_THREADS or the CPU mask).");
  m.def(
      "fit_line",
      [](const std::vector<double>& x, const std::vector<double>& y) {
        const mudd::Line line = mudd::fit_line(x, y);
        return py::make_tuple(line.slope, line.intercept, line.slope_error);
      },
      py::arg("x"), py::arg("y"), "(slope, intercept, standard error of the slope) of the least-squares line.");
  m.def("num_threads", &mudd::num_threads, "Threads that the next call will use.");
}
